# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Claiming and running: what workers and ``tick()`` do, and the stack of frames of a thread.

Workers claim straight from the heap. A body runs outside every lock; when it has ended, its
arguments are released, its outcome is stored, its end is told, and only then comes the next claim.
"""

cimport cython
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit, PyContext_New
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from .base cimport EngineBase, generation_now
from .core cimport (
    CLAIMED,
    LEAVE,
    MONOTONIC,
    NOTHING,
    USER,
    Core,
    Worker,
    core_claim,
    core_now,
    core_spare,
)
from .ending cimport Ending
from .intake cimport Loose
from .monitor cimport CALL_NOBODY, monitor_lock, monitor_signal, monitor_unlock
from .platform cimport dp_aligned_free, dp_now_ns
from .task cimport TaskFields, terminal
from .types cimport (
    CHUNK_SIZE,
    RUNNING,
    SHARED,
    SUCCEEDED,
    Node,
    Record,
    never,
)

import logging

from duepool import _refusals
from duepool._values import let_others_run

cdef extern from "pyslots.h":
    PyObject* dp_list_peek(PyObject* items, Py_ssize_t index) nogil
    void dp_clear_async(PyObject* nothing)
    PyObject* dp_call(PyObject* fn, PyObject* args, PyObject* kwargs, PyObject** error)

cdef extern from "Python.h":
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

cdef extern from "frames.h":
    Frame* dp_top
    void dp_push_frame(Frame* frame) nogil
    void dp_pop_frame(Frame* frame) nogil
    object dp_framed_function()


cdef object logger = logging.getLogger("duepool")

# A worker gives others a chance to take the GIL once in this time; C bodies never do.
cdef int64_t HOLD_NS = 1000000


# -- frames of this thread ----------------------------------------------------------------------

def current_task():
    """The task whose body runs on this thread under a compiled engine, or None."""
    if dp_top == NULL or dp_top.task == NULL:
        return None
    if (<EngineBase>dp_top.engine).core.generation != generation_now():
        return None  # a fork of the process whose body this is
    return <object>dp_top.task


def frame_depth():
    """How many run loops and ticks of compiled engines this thread is in."""
    cdef int depth = 0
    cdef Frame* frame = dp_top
    while frame != NULL:
        depth += 1
        frame = frame.below
    return depth


cdef void push_frame(Frame* frame) noexcept nogil:
    """Make ``frame`` the innermost of this thread."""
    dp_push_frame(frame)


cdef void pop_frame(Frame* frame) noexcept nogil:
    """Take ``frame``, the innermost, away."""
    dp_pop_frame(frame)


cdef Frame* top_frame() noexcept nogil:
    """The innermost frame of this thread, or NULL."""
    return dp_top


framed = dp_framed_function()


cdef Frame* frame_of(object engine) noexcept:
    """The innermost frame of ``engine`` on this thread (one of its workers or its ``tick()`` before
    a body that runs elsewhere), or NULL; NULL in a fork."""
    cdef Frame* frame = dp_top
    if (<EngineBase>engine).core.generation != generation_now():
        return NULL
    cdef Frame* elsewhere = NULL
    while frame != NULL:
        if frame.engine == <PyObject*>engine:
            if frame.worker != ELSEWHERE:
                return frame
            elsewhere = frame if elsewhere == NULL else elsewhere
        frame = frame.below
    return elsewhere


@cython.final
cdef class Seat:
    """What one worker, or one ``tick()``, needs between bodies."""

    def __cinit__(self, int index):
        self.worker.index = index
        self.worker.leads = False
        self.worker.seen_wake = 0
        self.worker.seen_now_ns = -1
        self.worker.backoff_ns = 0
        self.scratch = None
        self.interrupt = None
        self.result = None
        self.error = None
        self.released_ns = dp_now_ns()


cdef class Running(Ending):
    """The running half of an engine."""

    cdef int claim(
        self, Seat seat, int64_t until_ns, int64_t last_id, Record** record
    ) except -1:
        """Claim the head if it is due (a worker: ``until_ns`` < 0, the clock decides)."""
        cdef Core* core = self.core
        cdef Worker* worker = &seat.worker
        cdef int64_t now, given = 0
        cdef int answer, call = CALL_NOBODY
        cdef Node* spare
        if core.clock_kind == USER and until_ns < 0:
            worker.seen_wake = core.monitor.wake_count
            given = self.read_clock(False)
            if given != worker.seen_now_ns:
                worker.seen_now_ns = given
                worker.backoff_ns = 0
            elif worker.leads:
                worker.backoff_ns = min(max(2 * worker.backoff_ns, 1000000), 100000000)
        if self.copy_context and seat.scratch is None:
            seat.scratch = PyContext_New()  # here, since nothing may fail after the claim
        monitor_lock(&core.monitor)
        now = core_now(core, given) if until_ns < 0 else until_ns
        answer = core_claim(core, worker, now, now, last_id, record, &call)
        spare = core_spare(core)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        dp_aligned_free(spare)
        seat.interrupt = None
        if answer == CLAIMED and core.admission.in_line:
            seat.interrupt = self.tell_room()
        return answer

    cdef int work(self, Seat seat) except -1:
        """Claim and run until nothing is due: NOTHING, or LEAVE when nothing will ever be."""
        cdef Frame frame
        cdef Record* record = NULL
        cdef TaskFields task
        cdef int answer
        cdef int64_t now
        frame.engine = <PyObject*>self
        frame.task = NULL
        frame.worker = seat.worker.index
        dp_push_frame(&frame)
        try:
            if self.hand is not None:
                return self.dispatch(seat, &frame)
            answer = self.claim(seat, -1, never(), &record)
            while answer == CLAIMED:
                task = task_at(record)
                answer = self.serve(task, seat, &frame, &record)
                if self.core.generation != generation_now():
                    return LEAVE
                now = task.record.finished_ns
                task = None
                if self.core.clock_kind != MONOTONIC:
                    now = dp_now_ns()
                if now - seat.released_ns > HOLD_NS:
                    let_others_run()
                    seat.released_ns = dp_now_ns()
            return answer
        finally:
            dp_pop_frame(&frame)

    cdef int serve(
        self, TaskFields task, Seat seat, Frame* frame, Record** following
    ) except -1:
        """Run a claimed task and claim the next.

        Nothing of a run may reach into the next: whatever could run code when it is told or dropped
        comes before the next claim. Where there is nothing of the kind (no watcher, a result of
        None, no exception) the end and the next claim share one hold of the monitor.
        """
        cdef Core* core = self.core
        cdef Loose loose
        cdef int64_t now
        cdef int answer = NOTHING, call = CALL_NOBODY
        cdef bint done = False
        cdef Node* spare = NULL
        if not self.perform(task, seat, frame):
            return LEAVE
        if (
            seat.result is None and seat.error is None
            and task.watchers is None and task.requested is None
            and not task.record.flags & SHARED and core.clock_kind != USER
            and not (self.copy_context and seat.scratch is None)
        ):
            monitor_lock(&core.monitor)
            if task.record.state == RUNNING and not task.record.flags & SHARED:
                now = core_now(core, 0)
                self.end_locked(task, SUCCEEDED, now, &loose)
                answer = core_claim(core, &seat.worker, now, now, never(), following, &call)
                spare = core_spare(core)
                done = True
            monitor_unlock(&core.monitor)
            if done:
                monitor_signal(&core.monitor, call)
                dp_aligned_free(spare)
                self.tidy(task, &loose, None)
                seat.interrupt = None
                if answer == CLAIMED and core.admission.in_line:
                    self.tell_room()
                return answer
        self.settle(task, seat)
        seat.result = None
        seat.error = None
        return self.claim(seat, -1, never(), following)

    cdef int call_framed(self, object prepare, int index) except -1:
        """Call ``prepare()`` as a worker between bodies; what it raises is logged."""
        cdef Frame frame
        frame.engine = <PyObject*>self
        frame.task = NULL
        frame.worker = index
        dp_push_frame(&frame)
        try:
            prepare()
        except BaseException as error:
            try:
                logger.critical("preparing worker %d failed", index, exc_info=error)
            except BaseException:
                pass
        finally:
            dp_pop_frame(&frame)
        return 0

    def tick(self):
        """Manual mode: run everything that is due at entry, on this thread; how many ran."""
        cdef Core* core = self.core
        cdef Seat seat = Seat(-1)
        cdef Frame frame
        cdef Record* record = NULL
        cdef TaskFields task
        cdef int64_t now, last_id, given = 0
        cdef Py_ssize_t count = 0
        cdef bint busy
        self.alive()
        if self.max_workers:
            raise _refusals.tick_with_workers(self.max_workers)
        if core.clock_kind == USER:
            given = self.read_clock(False)
        monitor_lock(&core.monitor)
        busy = core.ticking
        core.ticking = True
        now = core_now(core, given)
        last_id = core.table.next_id - 1
        monitor_unlock(&core.monitor)
        if busy:
            raise _refusals.tick_busy()
        frame.engine = <PyObject*>self
        frame.task = NULL
        frame.worker = -1
        dp_push_frame(&frame)
        try:
            while self.hand is None or self.hand.ready(False):
                if self.claim(seat, now, last_id, &record) != CLAIMED:
                    if self.hand is not None:
                        self.hand.unready()
                    break
                task = task_at(record)
                if self.hand is not None:
                    self.give(task, seat, &frame)
                elif self.perform(task, seat, &frame):
                    self.settle(task, seat)
                self.alive()  # a body may have forked
                error = seat.error
                seat.error = None
                seat.result = None
                count += 1
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    if task._failure is not None:
                        task._failure.observed = True
                    raise error
                if seat.interrupt is not None:
                    raise seat.interrupt
                task = None
                if dp_now_ns() - seat.released_ns > HOLD_NS:
                    let_others_run()
                    seat.released_ns = dp_now_ns()
                    PyErr_CheckSignals()
            return count
        finally:
            error = None
            seat.interrupt = None
            seat.error = None
            dp_pop_frame(&frame)
            if core.generation == generation_now():
                monitor_lock(&core.monitor)
                core.ticking = False
                monitor_unlock(&core.monitor)

    cdef bint on_worker(self) noexcept:
        cdef Frame* frame = frame_of(self)
        return frame != NULL and frame.worker >= 0

    cdef bint perform(self, TaskFields task, Seat seat, Frame* frame) except -1:
        """Run a claimed task's body and release it and its arguments; what came of it is on the
        seat. False in a process that the body forked: there the task is the parent's."""
        cdef PyObject* raised = NULL
        seat.error = None
        seat.result = None
        try:
            seat.result = self.call_body(task, seat, frame, &raised)
        except BaseException as unforeseen:
            seat.error = unforeseen
        if raised != NULL:
            seat.error = <object>raised
            Py_DECREF_raw(raised)
        if self.core.generation != generation_now():
            return False
        # Before the waiters are told: whoever has the result finds the arguments released.
        task.drop_body()
        return True

    cdef int settle(self, TaskFields task, Seat seat) except -1:
        """End a task whose body has ended, whatever goes wrong."""
        cdef int _attempt
        error = seat.error
        for _attempt in range(3):
            try:
                later = self.finish(task, seat.result, error)
                if seat.interrupt is None:
                    seat.interrupt = later
                return 0
            except BaseException as unforeseen:  # out of memory; everything else is met in there
                if terminal(task.record.state):
                    logger.exception("after the end of task %d", task.record.id)
                    return 0
                error = unforeseen if error is None else error
        return 0

    cdef int dispatch(self, Seat seat, Frame* frame) except -1:
        """Claim and hand over until nothing is due; see ``handing``."""
        raise NotImplementedError

    cdef int give(self, TaskFields task, Seat seat, Frame* frame) except -1:
        """Hand a claimed task's body over; see ``handing``."""
        raise NotImplementedError

    cdef object call_body(self, TaskFields task, Seat seat, Frame* frame, PyObject** error):
        cdef PyObject* result
        cdef object fn = task.fn
        cdef object args = task.args
        cdef object kwargs = task.kwargs
        cdef object context = task.context
        cdef bint fresh = False
        if self.call_hook is not None:
            args = (task, fn, args, {} if kwargs is None else kwargs)
            fn = self.call_hook
            kwargs = None
        if self.copy_context:
            if context is None:
                context = seat.scratch
                fresh = True
            PyContext_Enter(context)
        frame.task = <PyObject*>task
        result = dp_call(
            <PyObject*>fn, <PyObject*>args, NULL if kwargs is None else <PyObject*>kwargs, error
        )
        frame.task = NULL
        if frame.worker >= 0:
            dp_clear_async(<PyObject*>let_others_run)
        if self.copy_context:
            PyContext_Exit(context)
            if fresh and len(context):
                seat.scratch = None  # the body left something in it
        if result == NULL:
            return None
        value = <object>result
        Py_DECREF_raw(result)
        return value


cdef TaskFields task_at(Record* record):
    """The handle of a task that this thread has just claimed."""
    return <TaskFields>dp_list_peek(
        <PyObject*>record.slots.refs, (record.id - 1) & (CHUNK_SIZE - 1)
    )
