# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Terminal transitions: a body has ended, a queued task is cancelled or fails.

A terminal transition of a task that was shared with ``concurrent.futures`` (the SHARED bit, set
under the monitor) is made holding its handshake, handshake before monitor: a completer that meets
the bit without holding it lets the monitor go and starts again.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t

from .base cimport taken
from .core cimport (
    MANUAL,
    USER,
    Core,
    core_emptied,
    core_end,
    core_now,
    core_spare,
    core_unfinished,
    core_unqueue,
)
from .heap cimport heap_move
from .intake cimport Intake, Loose
from .monitor cimport CALL_NOBODY, monitor_due_added, monitor_lock, monitor_signal, monitor_unlock
from .places cimport PATIENCE, ROOM, insist
from .platform cimport dp_add64, dp_aligned_free, dp_load32
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
    SLOTLESS,
    SUCCEEDED,
    Node,
    Record,
    never,
)

import _thread

from duepool import _refusals
from duepool._outcome import Failure, report_callback
from duepool._values import TaskState, due_overflow
from duepool.errors import CancelRequested

cdef extern from "pyslots.h":
    void dp_give_way(int by)
    int dp_calls_left()
    PyObject* dp_call_lock(PyObject* method)
    object dp_new(PyTypeObject* type, object empty)
    object dp_take_error()
    object dp_traceback(PyObject* error)
    bint dp_is_error(PyObject* error, PyObject* type)
    PyObject* dp_list_exchange(PyObject* items, Py_ssize_t index, PyObject* item) nogil
    PyObject* dp_new_none() nogil
    bint dp_is_list(PyObject* o) nogil

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

# How long a handshake may be kept from a task that has ended, in seconds.
cdef double HANDSHAKE_S = 2.0

cdef object LockType = type(_thread.allocate_lock())
cdef tuple EMPTY = ()


cdef object release_lock(object release):
    """Release a lock by its method; returns the exception that came in between, or None."""
    cdef PyObject* done
    for _ in range(PATIENCE):
        done = dp_call_lock(<PyObject*>release)
        if done != NULL:
            Py_DECREF_raw(done)
            return None
        error = dp_take_error()
        if type(error) is RuntimeError:
            return None  # somebody else released it
    return error


cdef int try_lock(object acquire) except -1:
    """Take a handshake by its method: 1 taken, 0 a signal cut the wait short, 2 nobody gives it.

    It is held for moments only, unless Ctrl-C struck a thread inside ``concurrent.futures.wait`` so
    that it will never give it back: then the task must end without it.
    """
    dp_give_way(ROOM)
    try:
        return 1 if acquire(True, HANDSHAKE_S) else 2
    except BaseException:
        return 0
    finally:
        dp_give_way(-ROOM)


cdef object interruption(object error, object source, TaskFields task):
    """Log ``error``; it is returned if it is a KeyboardInterrupt."""
    try:
        report_callback(source, task, error)
    except BaseException:
        pass
    return error if isinstance(error, KeyboardInterrupt) else None


cdef object tell(object watchers, TaskFields task):
    """Tell each of ``watchers`` of the task's end or of its cancel request, whatever one raises.

    Locks first, released without Python code, so that no waiter depends on a callback. What a
    callable raises is logged and stops nothing; returns the first KeyboardInterrupt among them,
    which may be a signal that was meant for this thread.
    """
    cdef bint near
    interrupt = None
    if watchers is None:
        return None
    for watcher in <list>watchers:
        if type(watcher) is LockType:
            release_lock(watcher.release)
    for watcher in <list>watchers:
        if type(watcher) is LockType:
            continue
        # Near the recursion limit a watcher would be called and told nothing.
        near = dp_calls_left() < ROOM
        if near:
            dp_give_way(ROOM)
        try:
            watcher(task)
        except BaseException as error:
            met = interruption(error, watcher, task)
            interrupt = met if interrupt is None else interrupt
        finally:
            if near:
                dp_give_way(-ROOM)
    return interrupt


cdef object failure_of(object error, TaskFields task):
    """A ``Failure``, made without Python code; observed, until its task is seen to have FAILED."""
    failure = dp_new(<PyTypeObject*>Failure, EMPTY)
    failure.observed = True
    failure.exception = error
    failure.traceback = dp_traceback(<PyObject*>error)
    failure.label = f"task {task.record.id}"
    return failure


cdef class Ending(Intake):
    """The ending half of an engine."""

    cdef object finish(self, TaskFields task, object result, object error):
        """The terminal transition of a task whose body has ended, and everyone told.

        Nothing comes before the transition that runs Python code of ours or could be cut short, but
        for the handshake's lock and a user's clock, which are tried again. Returns a
        KeyboardInterrupt that was met on the way, or None.
        """
        cdef Core* core = self.core
        cdef int64_t given = 0
        cdef int32_t expected = RUNNING, final
        cdef bint done = False
        cdef int patience = PATIENCE, code
        cdef Loose loose
        failure = None
        shake = None
        if error is not None:
            failure = failure_of(error, task)
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
                task.outcome = failure
                if failure is not None:
                    failure.observed = True
                    if dp_is_error(<PyObject*>error, <PyObject*>CancelRequested):
                        task.outcome = None
            if task.record.flags & SHARED and shake is None and patience:
                shake = task.shake
                code = try_lock(shake.acquire)
                if code != 1:
                    shake = None
                    patience = 0 if code == 2 else patience - 1
                    continue
            monitor_lock(&core.monitor)
            if task.record.state != expected:
                expected = task.record.state
            elif shake is not None or not patience or not task.record.flags & SHARED:
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
        if core.clock_kind == MANUAL:
            dp_add64(&core.telling, 1)
        loose.notify = core.admission.closed and (core.hands_over or not core_unfinished(core))

    cdef object tidy(self, TaskFields task, Loose* loose, object shake):
        """After a terminal transition, outside the monitor: tell everyone, drop what it let go.

        Each step is taken whatever the one before raised. Returns a KeyboardInterrupt that was met
        on the way, or None.
        """
        monitor_signal(&self.core.monitor, loose.call)
        # `task` keeps the handle alive to the end of this: nothing dies before all is told.
        taken(loose.name)
        taken(loose.handle)
        interrupt = None
        if loose.dead_block >= 0:
            self.chunks.pop(loose.dead_block, None)
        if shake is not None:
            interrupt = self.shake_hands(task, shake)
            release_lock(shake.release)
        elif task.record.flags & SHARED:
            interrupt = self.shake_hands(task, task.shake)
        if task.requested is not None:
            task.take_requested()
        if task.watchers is not None:
            later = tell(task.take_watchers(), task)
            interrupt = later if interrupt is None else interrupt
        if loose.notify:
            later = self.notify()
            interrupt = later if interrupt is None else interrupt
        if self.core.clock_kind == MANUAL:
            dp_add64(&self.core.telling, -1)
        return interrupt

    cdef object shake_hands(self, TaskFields task, object shake):
        """Tell the waiters of ``concurrent.futures``; as ``insist``."""
        return insist(shake.finished, (task,), (task, True))

    cdef object notify(self):
        """Let everyone who waits for the engine look again; as ``insist``."""
        return insist(self.latch.notify, (), ())

    cdef void drop_locked(self, TaskFields task, int64_t now, Loose* loose) noexcept nogil:
        """QUEUED → CANCELLED for a task that has entered without a place. Monitor held."""
        task.record.reason = 5
        self.end_locked(task, CANCELLED, now, loose)

    cdef int tidy_dropped(self, TaskFields task, Loose* loose) except -1:
        """What follows from that, outside the monitor."""
        body = task.take_body()
        interrupt = self.tidy(task, loose, None)
        del body
        if interrupt is not None and not self.on_worker():
            raise interrupt
        return 0

    cdef int cancel_task(
        self, TaskFields task, int reason, bint bounded, int64_t later_than
    ) except -1:
        """1: the task is or will be CANCELLED, and was not asked before; 2: it was already; 0: no.

        ``bounded``: only a QUEUED task that is due after ``later_than``. A KeyboardInterrupt that
        was met while everyone was told is raised at the end.
        """
        cdef Core* core = self.core
        cdef Record* record = &task.record
        cdef int32_t state
        cdef int64_t given = 0
        cdef Loose loose
        cdef Node* spare = NULL
        cdef bint ours
        shake = None
        interrupt = None
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
        ours = state == QUEUED and not (bounded and record.due_ns <= later_than)
        if ours:
            core_unqueue(core, record)
            record.reason = reason
            self.end_locked(task, CANCELLED, core_now(core, given), &loose)
            loose.call = core_emptied(core)
            spare = core_spare(core)
        elif state == RUNNING and not bounded:
            record.reason = reason
            table_request(&core.table, record)
        monitor_unlock(&core.monitor)
        if ours:
            # Dropped when all is told: finalizers must not run under the handshake.
            body = task.take_body()
            dp_aligned_free(spare)
            interrupt = self.tidy(task, &loose, shake)
            del body
            if core.admission.in_line:
                later = self.tell_room()
                interrupt = later if interrupt is None else interrupt
        else:
            if shake is not None:
                release_lock(shake.release)
            if state == RUNNING and not bounded:
                interrupt = tell(task.take_requested(), task)
        if interrupt is not None and not self.on_worker():
            raise interrupt
        if ours or (state == RUNNING and not bounded):
            return 1
        return 2 if state == CANCELLED or state == CANCEL_REQUESTED else 0

    cdef int fail_queued(self, TaskFields task, object error) except -1:
        """QUEUED → FAILED: the workers' initializer failed before the task could run."""
        cdef Core* core = self.core
        cdef bint mine
        cdef Loose loose
        shake = None
        failure = failure_of(_refusals.broken(error), task)  # observed: the initializer's is logged
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
            # The outcome of a QUEUED task is None, which is never freed: a plain store.
            task.outcome = failure
            core_unqueue(core, &task.record)
            self.end_locked(task, FAILED, core_now(core, core.last_now_ns), &loose)
            loose.call = core_emptied(core)
        monitor_unlock(&core.monitor)
        if mine:
            body = task.take_body()
            self.tidy(task, &loose, shake)
            del body
            if core.admission.in_line:
                self.tell_room()
        elif shake is not None:
            release_lock(shake.release)
        return 0

    def cancel(self, task, int reason=1):
        """As ``Task.cancel``, for a handle of this engine."""
        return self.cancel_task(self.mine(task), reason, False, 0) != 0

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
        interrupt = None
        for task in self.tasks(TaskState.QUEUED):
            # What is raised on the way waits: nobody else might ever end the rest.
            try:
                if self.cancel_task(<TaskFields>task, reason, True, bound) == 1:
                    cancelled.append(task)
            except BaseException as error:
                interrupt = error if interrupt is None else interrupt
        if interrupt is not None:
            raise interrupt
        cancelled.sort(key=_order)
        return cancelled

    def cancel_only_queued(self, task, int reason=1):
        """Cancel a task of this engine if it is QUEUED; False, and nothing happens, if it has
        started or ended."""
        return self.cancel_task(self.mine(task), reason, True, -1) == 1

    def cancel_runs(self):
        """Cancel every QUEUED run of a job, because the engine is closed; how many."""
        cdef Py_ssize_t count = 0
        interrupt = None
        self.alive()
        if not self.core.runs_queued:
            return 0
        for task in self.tasks(TaskState.QUEUED):
            if not (<TaskFields>task).record.flags & SLOTLESS:
                continue
            try:
                if self.cancel_task(<TaskFields>task, 4, True, -1) == 1:
                    count += 1
            except BaseException as error:
                interrupt = error if interrupt is None else interrupt
        if interrupt is not None:
            raise interrupt
        return count

    def request_all(self, int reason=4):
        """Ask every running body to stop; returns how many were asked now."""
        cdef Py_ssize_t count = 0
        interrupt = None
        for task in self.tasks(TaskState.RUNNING):
            try:
                if self.cancel_task(<TaskFields>task, reason, False, 0) == 1:
                    count += 1
            except BaseException as error:
                interrupt = error if interrupt is None else interrupt
        if interrupt is not None:
            raise interrupt
        return count

    def move_to(self, task, due_ns):
        """Give a QUEUED task the due time ``due_ns`` (now, if that has passed); False once it has
        started, or where a closed engine would never run it."""
        return self.move(self.mine(task), due_ns, True, None)

    def reschedule_ns(self, task, int64_t delay_ns, shown=None):
        """Give a QUEUED task a new due time, ``delay_ns`` from now; False once it has started."""
        return self.move(self.mine(task), delay_ns, False, shown)

    cdef object move(self, TaskFields mine, int64_t value, bint absolute, object shown):
        cdef Core* core = self.core
        cdef int64_t now, due = 0, given = 0
        cdef int call = CALL_NOBODY
        cdef bint queued, far = False
        if terminal(dp_load32(&mine.record.state)):
            return False
        self.alive()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        monitor_lock(&core.monitor)
        now = core_now(core, given)
        queued = mine.record.state == QUEUED
        if absolute:
            due = max(now, value)
        else:
            far = value > never() - now
            due = never() if far else now + value
        if due > core.claim_limit_ns:
            queued = False  # a closed engine would neither run it then nor cancel it
        if queued and not far:
            heap_move(&core.heap, &mine.record, due)
            call = monitor_due_added(&core.monitor, due)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        if queued and far:
            raise due_overflow("delay", shown, now)
        return queued


def _order(task):
    return task.due_ns, task.id
