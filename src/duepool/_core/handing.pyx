# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Bodies that run neither on an own worker nor in ``tick()``: handed over to an injected executor,
or run by the very thread that submits them.

Guarantee: a run that was handed over is ended once. Who may end it is decided under the monitor by
the CONCLUDING flag: the executor, whenever it says how the body ended, or the claimer, where the
handing over failed.
"""

from cpython.contextvars cimport PyContext_New
from cpython.object cimport PyObject
from libc.stdint cimport int32_t

from .base cimport generation_now
from .core cimport CLAIMED, HERE, LEAVE
from .monitor cimport monitor_lock, monitor_unlock
from .running cimport ELSEWHERE, Frame, Running, Seat, frame_of, pop_frame, push_frame, task_at
from .task cimport TaskFields, terminal
from .types cimport CONCLUDING, FAILED, Record, never

from duepool._values import due_overflow

cdef object MAX_NS = 2**63 - 1


cdef class Handing(Running):
    """The part of an engine that hands bodies over."""

    cdef int dispatch(self, Seat seat, Frame* frame) except -1:
        """Claim and hand over until nothing is due: NOTHING, or LEAVE when nothing will ever be.
        ``ready`` waits until one more body may be under way."""
        cdef Record* record = NULL
        cdef int answer
        while True:
            self.hand.ready(True)
            answer = self.claim(seat, -1, never(), &record)
            if answer != CLAIMED:
                self.hand.unready()
                return answer
            self.give(task_at(record), seat, frame)
            seat.error = None
            if self.core.generation != generation_now():
                return LEAVE

    cdef int give(self, TaskFields task, Seat seat, Frame* frame) except -1:
        """Hand a claimed task's body over. Where that raises, the task ends as if its body had
        raised it. A body that has run already (``InlineExecutor``) leaves what it raised on the
        seat, for ``tick()``."""
        seat.error = None
        seat.result = None
        frame.concluded = False
        try:
            fn, args, kwargs, context = task.take_body()
            self.hand.give(task, fn, args, kwargs or {}, context)
        except BaseException as error:
            if self.core.generation == generation_now() and self.concludes(task):
                seat.error = error
                self.settle(task, seat)
            else:
                seat.error = error
                raise
        if frame.concluded and task.record.state == FAILED and seat.error is None:
            seat.error = task.outcome.exception
        return 0

    cdef bint concludes(self, TaskFields task) noexcept nogil:
        """True for the one that is to end a run that was handed over."""
        cdef bint first
        monitor_lock(&self.core.monitor)
        first = not terminal(task.record.state) and not task.record.flags & CONCLUDING
        task.record.flags |= CONCLUDING
        monitor_unlock(&self.core.monitor)
        return first

    def conclude(self, task, result, error):
        """The end of a run that was handed over, by any thread; nothing if it has ended. A
        KeyboardInterrupt that was met while everyone was told is raised at the end."""
        cdef TaskFields mine = self.mine(task)
        cdef Frame* frame = frame_of(self)
        if self.core.generation != generation_now() or not self.concludes(mine):
            return
        if frame != NULL:
            frame.concluded = True
        interrupt = self.finish(mine, None if error is not None else result, error)
        if interrupt is not None and not self.on_worker():
            raise interrupt

    def submit_as(
        self, name, int kind, value, fn, args, kwargs, shown=None, int32_t tenant=-1,
        int mode=0, context=...,
    ):
        """Admit ``fn(*args, **kwargs)``; see ``duepool._values`` for ``kind``, ``value`` and
        ``mode``; ``shown`` is what the caller gave for the value. ``context``: one to run in, for
        this run alone; None for none."""
        if value > MAX_NS:
            raise due_overflow("delay", shown, self.now_ns())
        task = self.admit(name, kind, value, fn, args, kwargs, shown, tenant, mode, context)
        if mode == HERE:
            self.run_here(task)
        return task

    cdef int run_here(self, TaskFields task) except -1:
        """Run a task that this thread has claimed as it entered. A KeyboardInterrupt, which may be
        meant for this thread, is raised again unless it is one of the workers."""
        cdef Seat seat = Seat(-1)
        cdef Frame frame
        if self.copy_context:
            seat.scratch = PyContext_New()
        frame.engine = <PyObject*>self
        frame.task = NULL
        frame.worker = ELSEWHERE
        push_frame(&frame)
        try:
            if self.perform(task, seat, &frame):
                self.settle(task, seat)
        finally:
            pop_frame(&frame)
        self.alive()
        if not self.on_worker():
            if isinstance(seat.error, KeyboardInterrupt):
                if task._failure is not None:
                    task._failure.observed = True
                raise seat.error
            if seat.interrupt is not None:
                raise seat.interrupt
        return 0
