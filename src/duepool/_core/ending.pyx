# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Terminal transitions: a body has ended, a queued task is cancelled or fails.

A terminal transition of a task that was shared with ``concurrent.futures`` (the SHARED bit, set
under the monitor) is made holding its handshake, handshake before monitor: a completer that meets
the bit without holding it lets the monitor go and starts again.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from .admission cimport admission_release
from .base cimport taken
from .core cimport USER, Core, core_emptied, core_end, core_now, core_unfinished
from .heap cimport heap_disown, heap_move, heap_remove
from .intake cimport Intake
from .monitor cimport CALL_NOBODY, monitor_due_added, monitor_lock, monitor_signal, monitor_unlock
from .platform cimport dp_aligned_free, dp_load32
from .table cimport table_request
from .task cimport TaskFields, terminal
from .types cimport (
    CANCELLED,
    CANCEL_REQUESTED,
    CHUNK_SIZE,
    FAILED,
    QUEUED,
    RUNNING,
    SHARED,
    SUCCEEDED,
    Node,
    Record,
    never,
)

from duepool import _refusals
from duepool._outcome import Failure, report_callback
from duepool._values import TaskState, due_overflow
from duepool.errors import CancelRequested

cdef extern from "pyslots.h":
    PyObject* dp_list_exchange(PyObject* items, Py_ssize_t index, PyObject* item) nogil
    PyObject* dp_new_none() nogil
    bint dp_is_list(PyObject* o) nogil

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

cdef int tell(object watchers, TaskFields task) except -1:
    """Call each of ``watchers`` with ``task``; whatever one raises is logged and stops nothing."""
    if watchers is None:
        return 0
    for watcher in <list>watchers:
        try:
            watcher(task)
        except BaseException as error:
            report_callback(watcher, task, error)
    return 0


cdef class Ending(Intake):
    """The ending half of an engine."""

    cdef int finish(self, TaskFields task, object result, object error) except -1:
        """The terminal transition of a task whose body has ended, and everyone told."""
        cdef Core* core = self.core
        cdef int64_t given = 0
        cdef int32_t expected = RUNNING, final
        cdef bint done = False
        cdef Loose loose
        failure = None
        shake = None
        if error is not None:
            failure = Failure(error, error.__traceback__, f"task {task.record.id}", True)
        if core.clock_kind == USER:
            given = self.read_clock(False)
        while not done:
            if expected == RUNNING:
                final = SUCCEEDED if failure is None else FAILED
                task.outcome = result if failure is None else failure
                if failure is not None:
                    failure.observed = False
            else:
                final = CANCELLED
                if failure is not None:
                    failure.observed = True
                task.outcome = None if isinstance(error, CancelRequested) else failure
            if task.record.flags & SHARED and shake is None:
                shake = task.shake
                shake.acquire()
            monitor_lock(&core.monitor)
            if task.record.state != expected:
                expected = task.record.state
            elif shake is not None or not task.record.flags & SHARED:
                self.end_locked(task, final, core_now(core, given), &loose)
                done = True
            monitor_unlock(&core.monitor)
        return self.tidy(task, &loose, shake)

    cdef void end_locked(
        self, TaskFields task, int state, int64_t now, Loose* loose
    ) noexcept nogil:
        """The terminal transition; what it lets go is in ``loose``. Monitor held, GIL too."""
        cdef Core* core = self.core
        cdef int64_t place
        loose.name = NULL
        loose.call = CALL_NOBODY
        loose.handle = dp_list_exchange(
            <PyObject*>task.record.slots.refs,
            (task.record.id - 1) & (CHUNK_SIZE - 1),
            dp_new_none(),
        )
        core_end(core, &task.record, state, now, &place, &loose.dead_block)
        if place >= 0 and dp_is_list(<PyObject*>self.names):
            Py_INCREF_raw(<PyObject*>task.name)
            loose.name = dp_list_exchange(<PyObject*>self.names, place, <PyObject*>task.name)
        loose.notify = core.admission.closed and not core_unfinished(core)

    cdef int tidy(self, TaskFields task, Loose* loose, object shake) except -1:
        """After a terminal transition, outside the monitor: tell everyone, drop what it let go."""
        # `task` keeps the handle alive to the end of this, so that nothing dies before all is told.
        taken(loose.name)
        taken(loose.handle)
        if loose.dead_block >= 0:
            self.chunks.pop(loose.dead_block, None)
        if shake is not None:
            try:
                shake.finished(task)
            finally:
                shake.release()
        monitor_signal(&self.core.monitor, loose.call)
        if task.requested is not None:
            task.take_requested()
        if task.watchers is not None:
            tell(task.take_watchers(), task)
        if loose.notify:
            self.latch.notify()
        return 0

    cdef int cancel_task(
        self, TaskFields task, int reason, bint bounded, int64_t later_than
    ) except -1:
        """1: the task is or will be CANCELLED, and was not asked before; 2: it was already; 0: no.

        ``bounded``: only a QUEUED task that is due after ``later_than``.
        """
        cdef Core* core = self.core
        cdef Record* record = &task.record
        cdef int32_t state
        cdef int64_t given = 0
        cdef Loose loose
        cdef Node* spare = NULL
        shake = None
        state = dp_load32(&record.state)
        if terminal(state):
            return 2 if state == CANCELLED else 0
        self.alive()
        if core.clock_kind == USER:
            given = self.read_clock(False)
        while True:
            if record.flags & SHARED and shake is None:
                shake = task.shake
                shake.acquire()
            monitor_lock(&core.monitor)
            state = record.state
            if state == QUEUED and record.flags & SHARED and shake is None:
                monitor_unlock(&core.monitor)
                continue
            break
        if state == QUEUED and not (bounded and record.due_ns <= later_than):
            heap_remove(&core.heap, record)
            admission_release(&core.admission, 1)
            record.reason = reason
            self.end_locked(task, CANCELLED, core_now(core, given), &loose)
            loose.call = core_emptied(core)
            spare = heap_disown(&core.heap)
        elif state == RUNNING and not bounded:
            record.reason = reason
            table_request(&core.table, record)
        monitor_unlock(&core.monitor)
        dp_aligned_free(spare)
        if state == QUEUED and not (bounded and record.due_ns <= later_than):
            task.drop_body()
            self.tidy(task, &loose, shake)
            return 1
        if shake is not None:
            shake.release()
        if state == RUNNING and not bounded:
            tell(task.take_requested(), task)
            return 1
        return 2 if state == CANCELLED or state == CANCEL_REQUESTED else 0

    cdef int fail_queued(self, TaskFields task, object error) except -1:
        cdef Core* core = self.core
        cdef bint mine
        cdef Loose loose
        exception = _refusals.broken(error)
        failure = Failure(exception, None, f"task {task.record.id}", True)
        shake = None
        while True:
            if task.record.flags & SHARED and shake is None:
                shake = task.shake
                shake.acquire()
            monitor_lock(&core.monitor)
            mine = task.record.state == QUEUED
            if mine and task.record.flags & SHARED and shake is None:
                monitor_unlock(&core.monitor)
                continue
            break
        if mine:
            heap_remove(&core.heap, &task.record)
            admission_release(&core.admission, 1)
            # Nobody can claim it any more: it is ours, and not terminal yet.
            task.record.state = RUNNING
            core.table.counts[QUEUED] -= 1
            core.table.counts[RUNNING] += 1
        monitor_unlock(&core.monitor)
        if not mine:
            if shake is not None:
                shake.release()
            return 0
        task.drop_body()
        task.outcome = failure
        monitor_lock(&core.monitor)
        self.end_locked(task, FAILED, core_now(core, core.last_now_ns), &loose)
        loose.call = core_emptied(core)
        monitor_unlock(&core.monitor)
        return self.tidy(task, &loose, shake)

    def cancel(self, task, int reason=1):
        """As ``Task.cancel``, for a handle of this engine."""
        return self.cancel_task(self.own(task), reason, False, 0) != 0

    def cancel_id(self, task_id):
        """As ``cancel``, by id; False for a task whose record has left the history."""
        cdef TaskFields task = self.find(task_id)
        cdef int64_t number
        if task is not None:
            return self.cancel_task(task, 1, False, 0) != 0
        number = self.issued(task_id)
        view = self.find_ended(number)
        return view is not None and view.state == CANCELLED

    def cancel_queued(self, later_than, int reason=4):
        """Cancel every QUEUED task (due after ``later_than``, if given); returns them in order."""
        cdef int64_t bound = -1 if later_than is None else later_than
        cdef list cancelled = []
        for task in self.tasks(TaskState.QUEUED):
            if self.cancel_task(<TaskFields>task, reason, True, bound) == 1:
                cancelled.append(task)
        cancelled.sort(key=_order)
        return cancelled

    def request_all(self, int reason=4):
        """Ask every running body to stop; returns how many were asked now."""
        cdef Py_ssize_t count = 0
        for task in self.tasks(TaskState.RUNNING):
            if self.cancel_task(<TaskFields>task, reason, False, 0) == 1:
                count += 1
        return count

    def reschedule_ns(self, task, int64_t delay_ns, shown=None):
        """Give a QUEUED task a new due time, ``delay_ns`` from now; False once it has started."""
        cdef TaskFields mine = self.own(task)
        cdef Core* core = self.core
        cdef int64_t now, given = 0
        cdef int call = CALL_NOBODY
        cdef bint queued, far
        if terminal(dp_load32(&mine.record.state)):
            return False
        self.alive()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        monitor_lock(&core.monitor)
        now = core_now(core, given)
        queued = mine.record.state == QUEUED
        if core.claim_limit_ns != never() and delay_ns > core.claim_limit_ns - now:
            queued = False  # a closed engine would neither run it then nor cancel it
        far = delay_ns > never() - now
        if queued and not far:
            heap_move(&core.heap, &mine.record, now + delay_ns)
            call = monitor_due_added(&core.monitor, mine.record.due_ns)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        if queued and far:
            raise due_overflow("delay", shown, now)
        return queued


def _order(task):
    return task.due_ns, task.id
