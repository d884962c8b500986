# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""The compiled engine: admit, claim, complete, cancel, drain, and the run loop.

Guarantees.

1. The monitor is held for O(log n) of C (``submit_many``: O(k log n)): under it no Python code
   runs, nothing is allocated or freed, no reference is dropped that could be the last, and the GIL
   is never taken. So a thread that holds the GIL may take the monitor, and neither a finalizer nor
   a signal handler ever runs under it.
2. Whatever can raise comes before admission; after it no Python code of ours runs before the handle
   is returned.
3. A task is owned by the one thread that made its last transition. Only the owner touches its body,
   arguments, context and outcome; the outcome is written before the terminal state is stored with
   release, and read after the state was loaded with acquire.
4. While a task is unfinished, its chunk holds its handle, and so the heap's pointer to its record
   and the record's pointer to its chunk are valid.
5. A thread that is detached from the interpreter touches the C core only (see ``core.pxd``).

A terminal transition of a task that was shared with ``concurrent.futures`` (the SHARED bit, set
under the monitor) is made holding its handshake, handshake before monitor: a completer that meets
the bit without holding it lets the monitor go and starts again.
"""

cimport cython
from cpython.object cimport PyObject
from libc.math cimport floor, rint
from libc.stdint cimport int64_t

from .base cimport EngineBase, core_release, generation_now
from .clock cimport Cell
from .core cimport (
    DUE_AFTER,
    DUE_AT,
    DUE_NOW,
    LEAVE,
    USER,
    Core,
    core_limbo,
    core_now,
    core_park,
    core_unfinished,
    core_would_block_all,
)
from .handing cimport Handing
from .monitor cimport (
    CALL_LEADER,
    CALL_NOBODY,
    monitor_hand_over,
    monitor_lock,
    monitor_recall,
    monitor_signal,
    monitor_unlock,
)
from .platform cimport dp_add64, dp_load32, dp_now_ns
from .running cimport Frame, Seat, frame_of, top_frame
from .task cimport TaskFields, terminal
from .types cimport NS_PER_S, SHARED

import logging
import weakref

from duepool._core.clock import monotonic_ns
from duepool._core.running import current_task, frame_depth, framed
from duepool._values import (
    TaskState,
    check_body,
    due_overflow,
    instant_ns,
    read_calls,
    seconds_to_ns,
)

__all__ = [
    "NAME",
    "Cell",
    "Engine",
    "Handle",
    "SchedulerBase",
    "TaskBase",
    "current_task",
    "frame_depth",
    "framed",
    "monotonic_ns",
]

NAME = "cython"
cdef object logger = logging.getLogger("duepool")
cdef object MAX_NS = 2**63 - 1

cdef extern from "pyslots.h":
    int dp_plain_function(PyObject* fn)

globals()["Cell"] = Cell  # a cimported name is not in the module by itself

# The answers of duepool._values to a wait.
cdef enum:
    WAIT_FREE = 0
    WAIT_COUNTED = 1
    WAIT_DEADLOCK = 2
    WAIT_OVER = 3


cdef int64_t delay_of(Engine engine, object delay) except -1:
    """``seconds_to_ns`` with a fast path that does the same arithmetic."""
    cdef double seconds, whole
    cdef int64_t count
    if type(delay) is float:
        seconds = delay
        if 0.0 <= seconds < 9.2e9:
            whole = floor(seconds)
            return <int64_t>whole * NS_PER_S + <int64_t>rint((seconds - whole) * 1e9)
    elif type(delay) is int and 0 <= delay <= 9200000000:
        count = delay
        return count * NS_PER_S
    exact = seconds_to_ns(delay, "delay")
    if exact > MAX_NS:
        raise due_overflow("delay", delay, engine.now_ns())
    return exact


cdef class TaskBase(TaskFields):
    """The hot half of a task's handle; ``duepool.Task`` has the rest."""

    @property
    def _engine(self):
        return self.engine

    def cancel(self):
        """Cancel the task, or ask its running body to stop; True if it is or will be CANCELLED."""
        return (<Engine>engine_of(self)).cancel_task(self, 1, False, 0) != 0

    def reschedule(self, delay):
        """Make a QUEUED task due ``delay`` seconds from now; False once it has started."""
        cdef Engine engine = engine_of(self)
        return engine.reschedule_ns(self, delay_of(engine, delay), delay)

    @cython.critical_section
    def _watch(self, watcher):
        if terminal(dp_load32(&self.record.state)):
            return False
        (<Engine>engine_of(self)).alive()
        if self.watchers is None:
            self.watchers = [watcher]
        else:
            (<list>self.watchers).append(watcher)
        return True

    def _share(self, handshake):
        cdef Core* core = (<Engine>engine_of(self)).core
        cdef bint ended = terminal(dp_load32(&self.record.state))
        if not ended:
            (<Engine>self.engine).alive()
        with cython.critical_section(self):
            if self.shake is None:
                self.shake = handshake
        if not ended:
            monitor_lock(&core.monitor)
            self.record.flags |= SHARED
            monitor_unlock(&core.monitor)
        return self.shake

    def _enter_wait(self):
        """Count this worker as blocked on the task, if it is a worker of the task's engine."""
        cdef Engine engine = engine_of(self)
        cdef Core* core = engine.core
        cdef Frame* frame = top_frame()
        cdef Frame* mine = NULL
        cdef bint own = False
        cdef int answer = WAIT_COUNTED
        while frame != NULL:
            # A body that runs elsewhere holds no worker up.
            if frame.engine == <PyObject*>engine and mine == NULL and frame.worker >= -1:
                mine = frame
            if frame.task == <PyObject*>self:
                own = True
            frame = frame.below
        if mine == NULL and not own:
            return WAIT_FREE
        engine.alive()
        monitor_lock(&core.monitor)
        if terminal(self.record.state):
            answer = WAIT_OVER
        elif own or mine.worker < 0 or core_would_block_all(core):
            answer = WAIT_DEADLOCK
        else:
            core.blocked += 1
            self.record.blocked += 1
        monitor_unlock(&core.monitor)
        return answer

    def _leave_wait(self):
        """Uncount this worker, unless the completer did."""
        cdef Core* core = (<Engine>engine_of(self)).core
        if core.generation != generation_now():
            return
        monitor_lock(&core.monitor)
        if self.record.blocked > 0:
            self.record.blocked -= 1
            core.blocked -= 1
        monitor_unlock(&core.monitor)


cdef object engine_of(TaskFields task):
    if task.engine is None:
        raise RuntimeError("this task belongs to no scheduler")
    return task.engine


cdef int complain(object error) except -1:
    """Log what should never have been raised; whatever that raises is nobody's concern."""
    try:
        logger.critical("a worker met %r and goes on", error, exc_info=error)
    except BaseException:
        pass
    return 0


@cython.final
cdef class Handle:
    """What a worker thread holds: the core, and the engine weakly."""

    @property
    def latch(self):
        """Notified when a worker has left or a closed engine has nothing left to do."""
        return self.latch_

    @property
    def forked(self):
        """True in a fork of the process that made the scheduler."""
        return self.core.generation != generation_now()

    def engine(self):
        """The engine, or None once it is gone."""
        with cython.critical_section(self):
            strong = self.strong
        return self.weak() if strong is None else strong

    def wake(self):
        """Read the clock again now."""
        cdef Core* core = self.core
        cdef int call = CALL_NOBODY
        if core.generation != generation_now():
            return
        monitor_lock(&core.monitor)
        core.monitor.wake_count += 1
        if core.monitor.leader and not core.monitor.called:
            core.monitor.called = True
            call = CALL_LEADER
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)

    def run(self, int index, prepare=None):
        """The run loop of worker ``index``: claim and run until nothing will ever be due again.

        ``prepare()``, the initializer, is called first, as if by a body of the engine. A worker
        never dies of what is raised here: it is logged, and the loop goes on.
        """
        cdef Core* core = self.core
        cdef Seat seat = Seat(index)
        cdef Engine engine
        cdef int answer
        if core == NULL or core.generation != generation_now():
            return
        try:
            if prepare is not None:
                engine = self.engine()
                if engine is not None:
                    engine.call_framed(prepare, index)
            while True:
                engine = self.engine()
                if engine is None:
                    if core.dead:
                        return
                    with nogil:
                        core_limbo(core, &seat.worker)
                    if core.admission.closed and not core.heap.size:
                        return
                    continue
                try:
                    answer = engine.work(seat)
                except BaseException as error:
                    complain(error)
                    answer = 0
                engine = None
                if answer == LEAVE:
                    return
                with nogil:
                    answer = core_park(core, &seat.worker)
                seat.released_ns = dp_now_ns()
                if answer == LEAVE:
                    return
        finally:
            engine = None
            self.leave(seat)

    cdef int leave(self, Seat seat) except -1:
        """The worker ends: it is no leader any more, and the last one lets the engine go."""
        cdef Core* core = self.core
        cdef int call
        cdef bint last
        if core.generation != generation_now():
            return 0
        monitor_lock(&core.monitor)
        if seat.worker.leads:
            core.monitor.leader = False
        core.live -= 1
        last = core.live == 0
        call = monitor_hand_over(&core.monitor, core.heap.size > 0)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        strong = None
        if last:
            with cython.critical_section(self):
                strong = self.strong
                self.strong = None
        self.latch_.notify()
        return 0

    def fail(self, error):
        """The initializer of a worker failed: nothing can run any more."""
        engine = self.engine()
        if engine is not None:
            engine.fail(error)

    def keep(self, engine):
        """Hold the engine until the last worker has left."""
        cdef Core* core = self.core
        cdef int call
        cdef bint nobody
        with cython.critical_section(self):
            self.strong = engine
        monitor_lock(&core.monitor)
        core.kept = True
        nobody = core.live == 0
        call = monitor_recall(&core.monitor)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        if nobody:
            with cython.critical_section(self):
                self.strong = None

    def __dealloc__(self):
        if self.core != NULL and self.core.generation == generation_now():
            core_release(self.core)


@cython.final
cdef class Engine(Handing):
    """One scheduler's engine; see the module for what it guarantees."""

    def __init__(self, config):
        cdef Handle handle
        EngineBase.__init__(self, config)
        handle = Handle()
        handle.core = self.core
        dp_add64(&self.core.references, 1)
        handle.latch_ = self.latch
        handle.weak = weakref.ref(self)
        self.handle = handle

    def close(self, int mode):
        """Close admission, and limit what may still be claimed; returns the limit in force."""
        cdef Core* core = self.core
        cdef int64_t now, limit, given = 0
        cdef int call
        self.alive()
        if core.clock_kind == USER:
            given = self.read_clock(False)
        monitor_lock(&core.monitor)
        now = core_now(core, given)
        core.admission.closed = True
        if mode == 1:
            core.claim_limit_ns = min(core.claim_limit_ns, now)
        elif mode == 2:
            core.claim_limit_ns = -1
        limit = core.claim_limit_ns
        call = monitor_recall(&core.monitor)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        interrupt = self.notify()
        if core.admission.in_line:
            later = self.tell_room()
            interrupt = later if interrupt is None else interrupt
        if interrupt is not None:
            raise interrupt
        return limit

    def is_quiet(self):
        """Closed, every task ended, and every worker gone (but those that wait for just this)."""
        cdef Core* core = self.core
        cdef bint quiet
        self.alive()
        monitor_lock(&core.monitor)
        quiet = (
            core.admission.closed and not core_unfinished(core) and core.live <= core.inside
        )
        monitor_unlock(&core.monitor)
        return quiet

    def fail(self, error):
        """A worker's initializer failed: close, and fail everything that is queued."""
        with cython.critical_section(self):
            if self.broken is None:
                self.broken = error
        self.close(2)
        for task in self.tasks(TaskState.QUEUED):
            self.fail_queued(<TaskFields>task, error)

    def runs_here(self):
        """Is the calling thread a worker of this engine, or inside its ``tick()``?"""
        return frame_of(self) != NULL

    def try_block(self):
        """Count this worker as blocked on something; DEADLOCK if that leaves nobody."""
        cdef Core* core = self.core
        cdef Frame* frame = frame_of(self)
        cdef int answer = WAIT_COUNTED
        if frame == NULL or frame.worker < -1:
            return WAIT_FREE
        self.alive()
        monitor_lock(&core.monitor)
        if frame.worker < 0 or core_would_block_all(core):
            answer = WAIT_DEADLOCK
        else:
            core.blocked += 1
        monitor_unlock(&core.monitor)
        return answer

    def end_block(self):
        """Uncount a worker that ``try_block`` counted."""
        if self.core.generation != generation_now():
            return
        monitor_lock(&self.core.monitor)
        self.core.blocked -= 1
        monitor_unlock(&self.core.monitor)

    def enter_inside(self, bint forever):
        """An own worker begins to wait inside ``shutdown()``, ``forever``: without a time-out."""
        self.alive()
        monitor_lock(&self.core.monitor)
        self.core.inside += 1
        self.core.inside_forever += forever
        monitor_unlock(&self.core.monitor)
        self.latch.notify()

    def leave_inside(self, bint forever):
        """An own worker has waited inside ``shutdown()``."""
        if self.core.generation != generation_now():
            return
        monitor_lock(&self.core.monitor)
        self.core.inside -= 1
        self.core.inside_forever -= forever
        monitor_unlock(&self.core.monitor)

    def drop(self):
        """The scheduler died without a shutdown: what was accepted still runs."""
        cdef Core* core = self.core
        cdef bint unfinished
        if core.generation != generation_now() or self.max_workers == 0:
            return
        self.close(0)
        self.cancel_runs()
        monitor_lock(&core.monitor)
        unfinished = core_unfinished(core)
        monitor_unlock(&core.monitor)
        if unfinished:
            (<Handle>self.handle).keep(self)


cdef class SchedulerBase:
    """The hot half of a scheduler; ``duepool.Scheduler`` has the rest."""

    def _open(self, config):
        if self._engine is not None:
            raise RuntimeError("a scheduler is initialised once")
        self._engine = Engine(config)

    def submit(self, fn, /, *args, **kwargs):
        """Run ``fn(*args, **kwargs)`` as soon as a worker is free."""
        return ready(self).admit(None, DUE_NOW, 0, fn, args, kwargs if kwargs else None, None)

    def submit_after(self, delay, fn, /, *args, **kwargs):
        """Run ``fn`` once ``delay`` seconds have passed."""
        cdef Engine engine = ready(self)
        if dp_plain_function(<PyObject*>fn) != 1:
            check_body(fn, engine.coroutines)
        return engine.admit(
            None, DUE_AFTER, delay_of(engine, delay), fn, args, kwargs if kwargs else None, delay
        )

    def submit_at_ns(self, due_ns, fn, /, *args, **kwargs):
        """Run ``fn`` at the instant ``due_ns`` of the scheduler's clock."""
        cdef Engine engine = ready(self)
        if dp_plain_function(<PyObject*>fn) != 1:
            check_body(fn, engine.coroutines)
        return engine.admit(
            None, DUE_AT, instant_ns(due_ns, "due_ns"), fn, args, kwargs if kwargs else None, due_ns
        )

    def submit_many(self, calls, delay=0):
        """Admit each of ``calls``, all or none, due ``delay`` seconds from now."""
        cdef Engine engine = ready(self)
        calls = read_calls(calls)
        for fn, _ in calls:
            if dp_plain_function(<PyObject*>fn) != 1:
                check_body(fn, engine.coroutines)
        return engine.submit_bodies(None, calls, delay_of(engine, delay), delay)

    def cancel(self, task_or_id):
        """Cancel a task, given by its handle or its id."""
        cdef Engine engine = ready(self)
        cdef TaskBase task = engine.own(task_or_id)
        if task is None:
            return engine.cancel_id(task_or_id)
        return engine.cancel_task(task, 1, False, 0) != 0

    def cancel_many(self, tasks):
        """Cancel each of ``tasks``; how many are or will be CANCELLED."""
        cdef Engine engine = ready(self)
        cdef list items = list(tasks)
        cdef TaskBase task
        cdef Py_ssize_t count = 0
        engine.alive()
        for item in items:
            if engine.own(item) is None:
                engine.issued(item)
        interrupt = None
        for item in items:
            task = engine.own(item)
            try:
                if (engine.cancel_id(item) if task is None
                        else engine.cancel_task(task, 1, False, 0) != 0):
                    count += 1
            except BaseException as error:
                interrupt = error if interrupt is None else interrupt
        if interrupt is not None:
            raise interrupt
        return count

    def tick(self):
        """Manual mode: run everything that is due now, on this thread; how many ran."""
        return ready(self).tick()

    def now_ns(self):
        """The scheduler's clock, in nanoseconds."""
        return ready(self).now_ns()

    def get(self, task_id):
        """The unfinished task with this id; ``UnknownTask`` if there is none."""
        return ready(self).get(task_id)

    def view(self, task_id):
        """The record of a task, unfinished or in the history; else ``UnknownTask``."""
        return ready(self).view(task_id)

    def tasks(self, state=None):
        """The unfinished tasks (in ``state``, if given), by id."""
        return ready(self).tasks(state)


cdef Engine ready(SchedulerBase scheduler):
    if scheduler._engine is None:
        raise RuntimeError("Scheduler.__init__() was not called")
    return scheduler._engine
