# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""The compiled engine: admit, claim, complete, cancel, drain, and the run loop.

Guarantees.

1. The monitor is held for O(log n) of C (``submit_many``: O(k log n)): under it no Python code runs,
   nothing is allocated or freed, no reference is dropped that could be the last, and the GIL is
   never taken. So a thread that holds the GIL may take the monitor, and neither a finalizer nor a
   signal handler ever runs under it.
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
from cpython.contextvars cimport PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit, PyContext_New
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.math cimport floor, rint
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from .admission cimport CLOSED, FULL, admission_init, admission_release
from .clock cimport Cell, cell_release
from .core cimport (
    CLAIMED,
    DUE_AFTER,
    DUE_AT,
    DUE_NOW,
    LATENESS_BUCKETS,
    LEAVE,
    MANUAL,
    MONOTONIC,
    NO_ROOM,
    PAST,
    TOO_FAR,
    USER,
    Core,
    Worker,
    core_check,
    core_claim,
    core_emptied,
    core_end,
    core_limbo,
    core_now,
    core_park,
    core_unfinished,
)
from .heap cimport (
    heap_adopt,
    heap_at,
    heap_disown,
    heap_init,
    heap_move,
    heap_next_segment,
    heap_peek,
    heap_push,
    heap_remove,
)
from .monitor cimport (
    CALL_LEADER,
    CALL_NOBODY,
    monitor_destroy,
    monitor_due_added,
    monitor_hand_over,
    monitor_init,
    monitor_lock,
    monitor_recall,
    monitor_signal,
    monitor_unlock,
)
from .platform cimport (
    dp_add64,
    dp_aligned_alloc,
    dp_aligned_free,
    dp_load32,
    dp_load64,
    dp_now_ns,
)
from .table cimport Ended, table_add, table_init, table_request
from .task cimport TaskFields, terminal
from .types cimport (
    CANCEL_REQUESTED,
    CANCELLED,
    CHUNK_BITS,
    CHUNK_SIZE,
    FAILED,
    FRESH,
    NS_PER_S,
    QUEUED,
    RUNNING,
    SHARED,
    SUCCEEDED,
    Node,
    Record,
    Slots,
    never,
)

import logging
import os
import weakref

from duepool import _refusals, _values
from duepool._core.clock import monotonic_ns
from duepool._outcome import Failure, report_callback, report_clock
from duepool._values import (
    Counts,
    TaskState,
    TaskView,
    check_body,
    clock_kind,
    due_overflow,
    instant_ns,
    read_calls,
    seconds_to_ns,
)
from duepool.errors import CancelRequested, ClockError

__all__ = [
    "NAME",
    "Cell",
    "Engine",
    "Handle",
    "SchedulerBase",
    "TaskBase",
    "current_task",
    "frame_depth",
    "monotonic_ns",
]

NAME = "cython"
globals()["Cell"] = Cell  # a cimported name is not in the module by itself

cdef extern from "pyslots.h":
    Frame* dp_top
    void dp_list_publish(PyObject* items, Py_ssize_t index, PyObject* item) nogil
    PyObject* dp_list_exchange(PyObject* items, Py_ssize_t index, PyObject* item) nogil
    PyObject* dp_list_peek(PyObject* items, Py_ssize_t index) nogil
    PyObject* dp_new_none() nogil
    PyObject* dp_call(PyObject* fn, PyObject* args, PyObject* kwargs, PyObject** error)
    int dp_plain_function(PyObject* fn)
    object dp_new(PyTypeObject* type, object empty)

    void dp_push_frame(Frame* frame) nogil
    void dp_pop_frame(Frame* frame) nogil
    bint dp_is_list(PyObject* o) nogil

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

cdef object logger = logging.getLogger("duepool")
cdef tuple STATES = tuple(TaskState)
cdef tuple REASONS = _values.REASONS
cdef tuple EMPTY = ()
cdef object MAX_ID = 0x7FFFFFFFFFFFFFFF

# The answers of duepool._values to a wait.
cdef enum:
    WAIT_FREE = 0
    WAIT_COUNTED = 1
    WAIT_DEADLOCK = 2
    WAIT_OVER = 3

# A worker lets go of the GIL once when it held it for this long.
cdef int64_t HOLD_NS = 1000000

# How many records are copied in one hold of the monitor.
cdef int64_t SLICE = 64

# Bumped in the child of every fork; an engine of another generation is never locked nor freed.
cdef int64_t fork_generation = 1


def _forked_in_child():
    global fork_generation
    fork_generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked_in_child)


# -- frames of this thread ----------------------------------------------------------------------

def current_task():
    """The task whose body runs on this thread under a compiled engine, or None."""
    if dp_top == NULL or dp_top.task == NULL:
        return None
    return <object>dp_top.task


def frame_depth():
    """How many run loops and ticks of compiled engines this thread is in."""
    cdef int depth = 0
    cdef Frame* frame = dp_top
    while frame != NULL:
        depth += 1
        frame = frame.below
    return depth


cdef Frame* frame_of(Engine engine) noexcept:
    """The innermost frame of ``engine`` on this thread, or NULL."""
    cdef Frame* frame = dp_top
    while frame != NULL and frame.engine != <PyObject*>engine:
        frame = frame.below
    return frame


# -- memory -------------------------------------------------------------------------------------

cdef Core* core_new(int64_t history) except NULL:
    cdef Core* core = <Core*>calloc(1, sizeof(Core))
    cdef Ended* ring = NULL
    if core == NULL:
        raise MemoryError()
    if history:
        ring = <Ended*>calloc(history, sizeof(Ended))
        if ring == NULL:
            free(core)
            raise MemoryError(f"no memory for a history of {history} records")
    if monitor_init(&core.monitor):
        free(ring)
        free(core)
        raise OSError("the platform has no lock to give")
    heap_init(&core.heap)
    table_init(&core.table, history, ring)
    core.references = 1
    core.generation = fork_generation
    return core


cdef void core_release(Core* core) noexcept nogil:
    """Give one count back; the last frees. Not in the child of a fork: there it leaks."""
    cdef int k
    if dp_add64(&core.references, -1):
        return
    monitor_destroy(&core.monitor)
    for k in range(core.heap.segment_count):
        dp_aligned_free(core.heap.segments[k])
    free(core.table.ring)
    cell_release(core.cell)
    free(core)


@cython.final
cdef class Chunk:
    """Holds the handles of the unfinished tasks of 64 consecutive ids, for the collector to see."""

    def __cinit__(self):
        self.refs = [None] * CHUNK_SIZE
        self.slots.refs = <void*>self.refs
        self.slots.following = NULL
        self.slots.issued = 0
        self.slots.live = 0


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
        self.released_ns = dp_now_ns()


# -- reading arguments ---------------------------------------------------------------------------

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
    if exact > MAX_ID:
        raise due_overflow("delay", delay, engine.now_ns())
    return exact


cdef class TaskBase(TaskFields):
    """The hot half of a task's handle; ``duepool.Task`` has the rest."""

    @property
    def _engine(self):
        return self.engine

    def cancel(self):
        """Cancel the task, or ask its running body to stop; True when it is or will be CANCELLED."""
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
        with cython.critical_section(self):
            if self.shake is None:
                self.shake = handshake
        if not terminal(dp_load32(&self.record.state)):
            (<Engine>self.engine).alive()
            monitor_lock(&core.monitor)
            self.record.flags |= SHARED
            monitor_unlock(&core.monitor)
        return self.shake

    def _enter_wait(self):
        """Count this worker as blocked on the task, if it is a worker of the task's engine."""
        cdef Engine engine = engine_of(self)
        cdef Core* core = engine.core
        cdef Frame* frame = dp_top
        cdef Frame* mine = NULL
        cdef bint own = False
        cdef int answer = WAIT_COUNTED
        while frame != NULL:
            if frame.engine == <PyObject*>engine and mine == NULL:
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
        elif own or mine.worker < 0 or core.blocked + core.inside + 1 >= core.live:
            answer = WAIT_DEADLOCK
        else:
            core.blocked += 1
            self.record.blocked += 1
        monitor_unlock(&core.monitor)
        return answer

    def _leave_wait(self):
        """Uncount this worker, unless the completer did."""
        cdef Core* core = (<Engine>engine_of(self)).core
        monitor_lock(&core.monitor)
        if self.record.blocked > 0:
            self.record.blocked -= 1
            core.blocked -= 1
        monitor_unlock(&core.monitor)


cdef object engine_of(TaskFields task):
    if task.engine is None:
        raise RuntimeError("this task belongs to no scheduler")
    return task.engine


cdef int tell(object watchers, TaskBase task) except -1:
    """Call each of ``watchers`` with ``task``; whatever one raises is logged and stops nothing."""
    if watchers is None:
        return 0
    for watcher in <list>watchers:
        try:
            watcher(task)
        except BaseException as error:
            report_callback(watcher, task, error)
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
        return self.core.generation != fork_generation

    def engine(self):
        """The engine, or None once it is gone."""
        strong = self.strong
        return self.weak() if strong is None else strong

    def wake(self):
        """Read the clock again now."""
        cdef Core* core = self.core
        cdef int call = CALL_NOBODY
        if core.generation != fork_generation:
            return
        monitor_lock(&core.monitor)
        core.monitor.wake_count += 1
        if core.monitor.leader and not core.monitor.called:
            core.monitor.called = True
            call = CALL_LEADER
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)

    def run(self, int index):
        """The run loop of worker ``index``: claim and run until nothing will ever be due again."""
        cdef Core* core = self.core
        cdef Seat seat = Seat(index)
        cdef Engine engine
        cdef int answer
        if core.generation != fork_generation:
            return
        try:
            while True:
                engine = self.engine()
                if engine is None:
                    if core.dead:
                        return
                    with nogil:
                        core_limbo(core, &seat.worker)
                    continue
                answer = engine.work(seat)
                engine = None
                if answer == LEAVE:
                    return
                with nogil:
                    answer = core_park(core, &seat.worker)
                seat.released_ns = dp_now_ns()
                if answer == LEAVE:
                    return
        finally:
            self.leave(seat)

    cdef int leave(self, Seat seat) except -1:
        """The worker ends: it is no leader any more, and the last one lets the engine go."""
        cdef Core* core = self.core
        cdef int call
        cdef bint last
        if core.generation != fork_generation:
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
        self.strong = engine
        monitor_lock(&core.monitor)
        core.kept = True
        nobody = core.live == 0
        call = monitor_recall(&core.monitor)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        if nobody:
            self.strong = None

    def __dealloc__(self):
        if self.core != NULL and self.core.generation == fork_generation:
            core_release(self.core)


@cython.final
cdef class Engine:
    """One scheduler's engine; see the module for what it guarantees."""

    def __init__(self, config):
        cdef Core* core
        if self.core != NULL:
            raise RuntimeError("an engine is made once")
        clock = config.clock
        core = self.core = core_new(config.history)
        core.max_workers = config.max_workers
        core.past_due_reject = config.past_due_reject
        core.claim_limit_ns = never()
        admission_init(&core.admission, -1 if config.capacity is None else config.capacity)
        core.clock_kind = clock_kind(clock)
        if core.clock_kind == MANUAL:
            core.cell = (<Cell?>clock._cell).memory
            dp_add64(&core.cell.references, 1)
        self.config = config
        self.clock = clock
        self.max_workers = config.max_workers
        self.task_type = config.task_type
        self.crew = config.crew
        self.latch = config.crew.latch
        self.copy_context = config.copy_context
        self.chunks = {}
        self.tail = NULL
        self.newest = NULL
        handle = Handle()
        handle.core = core
        dp_add64(&core.references, 1)
        handle.latch_ = self.latch
        handle.weak = weakref.ref(self)
        self.handle = handle
        if core.clock_kind == USER:
            self.read_clock(True)

    def __dealloc__(self):
        cdef Core* core = self.core
        cdef int call
        if core == NULL or core.generation != fork_generation:
            return
        monitor_lock(&core.monitor)
        core.dead = True
        call = monitor_recall(&core.monitor)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        core_release(core)

    cdef int alive(self) except -1:
        if self.core.generation != fork_generation:
            raise _refusals.forked()
        return 0

    # -- time -------------------------------------------------------------------------------------

    cdef int64_t read_clock(self, bint strict) except -1:
        """A reading of the user's clock, outside the monitor. Not strict: the last known time stands
        in for one that fails, which is counted, and logged once."""
        cdef Core* core = self.core
        cdef int64_t before = dp_load64(&core.last_now_ns)
        cdef int64_t now
        try:
            value = self.clock.now_ns()
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ID:
                raise _refusals.clock_value(self.clock, value)
            now = value
            if now < before:
                raise _refusals.clock_back(self.clock, before, now)
            return now
        except Exception as error:
            monitor_lock(&core.monitor)
            core.clock_errors += 1
            monitor_unlock(&core.monitor)
            if strict:
                if isinstance(error, ClockError):
                    raise
                raise _refusals.clock_raised(self.clock, error) from error
            if not self.clock_reported:
                self.clock_reported = True
                report_clock(self.clock, error)
            return before

    def now_ns(self):
        """The scheduler's clock, never before an earlier reading."""
        cdef Core* core = self.core
        cdef int64_t given = 0
        cdef int64_t now
        self.alive()
        if core.clock_kind == MONOTONIC:
            return dp_now_ns()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        monitor_lock(&core.monitor)
        now = core_now(core, given)
        monitor_unlock(&core.monitor)
        return now

    def next_due_ns(self):
        """The due time of the heap's head, or None."""
        cdef Core* core = self.core
        cdef int64_t due = -1
        self.alive()
        monitor_lock(&core.monitor)
        if core.heap.size:
            due = heap_at(&core.heap, 0).due_ns
        monitor_unlock(&core.monitor)
        return None if due < 0 else due

    # -- admission ----------------------------------------------------------------------------------

    cdef TaskBase new_task(self, object name, object fn, object args, object kwargs):
        cdef TaskBase task = <TaskBase>dp_new(<PyTypeObject*>self.task_type, EMPTY)
        task.engine = self
        task.fn = fn
        task.args = args
        task.kwargs = kwargs
        task.name = name
        if self.copy_context:
            context = PyContext_CopyCurrent()
            if len(context):
                task.context = context
        return task

    cdef TaskBase admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown,
    ):
        cdef Core* core = self.core
        cdef int64_t now = 0, due = 0, given = 0
        cdef int code, call = CALL_NOBODY
        cdef TaskBase task
        self.alive()
        if dp_plain_function(<PyObject*>fn) != 1:
            check_body(fn)
        task = self.new_task(name, fn, args, kwargs)
        if core.hired < core.max_workers:
            self.hire(1)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(core, 1, kind, value, given, &now, &due)
            if code == 0:
                self.enter_locked(&task.record, <PyObject*>task, now, due)
                call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == 0:
                monitor_signal(&core.monitor, call)
                return task
            if code != NO_ROOM:
                self.refuse(code, 1, value, now, shown)
            self.prepare(1)

    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due
    ) noexcept nogil:
        """Give the task its id, its slot and its place in the heap. Monitor held, GIL too."""
        cdef Slots* slots = self.tail
        record.due_ns = due
        table_add(&self.core.table, record, now)
        record.slots = slots
        Py_INCREF_raw(task)
        dp_list_publish(<PyObject*>slots.refs, (record.id - 1) & (CHUNK_SIZE - 1), task)
        slots.issued += 1
        slots.live += 1
        if slots.issued == CHUNK_SIZE:
            self.tail = slots.following
            if self.tail == NULL:
                self.newest = NULL  # this chunk may be gone before the next is prepared
        self.core.prepared -= 1
        heap_push(&self.core.heap, record)

    cdef int refuse(self, int code, int64_t k, int64_t value, int64_t now, object shown) except -1:
        """Raise why ``k`` tasks were not admitted."""
        if code == TOO_FAR:
            raise due_overflow("delay", shown, now)
        if code == PAST:
            raise _refusals.past(value, now)
        if code == FULL:
            raise _refusals.full(self.core.admission.capacity, k)
        if self.broken is not None:
            raise _refusals.broken(self.broken)
        raise _refusals.closed()

    cdef int prepare(self, int64_t k) except -1:
        """Make room for ``k`` more tasks, outside the monitor."""
        cdef Core* core = self.core
        cdef bint short_of_slots, short_of_nodes
        cdef int64_t nodes
        while True:
            monitor_lock(&core.monitor)
            short_of_slots = core.prepared < k
            short_of_nodes = core.heap.room - core.heap.size < k
            nodes = heap_next_segment(&core.heap)
            monitor_unlock(&core.monitor)
            if short_of_slots:
                self.add_chunk()
            elif short_of_nodes:
                self.add_segment(nodes)
            else:
                return 0

    cdef int add_chunk(self) except -1:
        # Between the link and the entry into the dict no Python code runs and the GIL stays here;
        # on free-threaded builds get() of an id of this very moment may miss it.
        cdef Core* core = self.core
        cdef Chunk chunk = Chunk()
        cdef Slots* slots = &chunk.slots
        Py_INCREF(chunk)  # the dict's reference, until it is in there
        monitor_lock(&core.monitor)
        slots.block = self.next_block
        self.next_block += 1
        if self.newest != NULL:
            self.newest.following = slots
        self.newest = slots
        if self.tail == NULL:
            self.tail = slots
        core.prepared += CHUNK_SIZE
        monitor_unlock(&core.monitor)
        self.chunks[slots.block] = chunk
        Py_DECREF_raw(<PyObject*>chunk)
        return 0

    cdef int add_segment(self, int64_t nodes) except -1:
        cdef Core* core = self.core
        cdef Node* segment = <Node*>dp_aligned_alloc(nodes * sizeof(Node))
        if segment == NULL:
            raise MemoryError(f"no memory for {nodes} more queued tasks")
        monitor_lock(&core.monitor)
        if heap_next_segment(&core.heap) == nodes:
            heap_adopt(&core.heap, segment)
            segment = NULL
        monitor_unlock(&core.monitor)
        dp_aligned_free(segment)
        return 0

    def keep_names(self):
        """From now on the history has names too; called before the first named task enters."""
        names = [None] * self.config.history
        with cython.critical_section(self):
            if self.names is None:
                self.names = names

    cdef int hire(self, int64_t k) except -1:
        """Start up to ``k`` more workers, as long as fewer than max_workers exist."""
        cdef Core* core = self.core
        cdef int32_t index, live
        while k > 0:
            k -= 1
            monitor_lock(&core.monitor)
            if core.admission.closed or core.hired >= core.max_workers:
                monitor_unlock(&core.monitor)
                return 0
            index = core.hired
            core.hired += 1
            core.live += 1
            monitor_unlock(&core.monitor)
            try:
                interrupted = self.crew.hire(self.handle, index)
            except BaseException as error:
                monitor_lock(&core.monitor)
                core.hired -= 1
                core.live -= 1
                live = core.live
                monitor_unlock(&core.monitor)
                self.latch.notify()
                if live == 0 or not isinstance(error, Exception):
                    raise
                logger.warning("no further worker thread could be started: %r", error)
                return 0
            if interrupted is not None:
                raise interrupted
        return 0

    def submit_as(self, name, int kind, value, fn, args, kwargs, shown=None):
        """Admit ``fn(*args, **kwargs)``; see ``duepool._values`` for ``kind`` and ``value``, of
        which ``shown`` is what the caller gave."""
        if value > MAX_ID:
            raise due_overflow("delay", shown, self.now_ns())
        return self.admit(name, kind, value, fn, args, kwargs, shown)

    def submit_many_as(self, name, calls, delay, shown=None):
        """Admit each of ``calls`` (a callable or ``(fn, *args)``), all or none, ``delay``
        nanoseconds from now."""
        cdef int64_t delay_ns
        cdef Core* core = self.core
        cdef list tasks = []
        cdef int64_t now = 0, due = 0, given = 0, k, i
        cdef int code, call = CALL_NOBODY
        cdef TaskBase task
        self.alive()
        for fn, args in read_calls(calls):
            if dp_plain_function(<PyObject*>fn) != 1:
                check_body(fn)
            tasks.append(self.new_task(name, fn, args, None))
        if delay > MAX_ID:
            raise due_overflow("delay", shown, self.now_ns())
        delay_ns = delay
        k = len(tasks)
        if core.hired < core.max_workers:
            self.hire(k)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(
                core, k, DUE_AFTER if delay_ns else DUE_NOW, delay_ns, given, &now, &due
            )
            if code == 0 and k:
                for i in range(k):
                    self.enter_locked(
                        &(<TaskBase>dp_list_peek(<PyObject*>tasks, i)).record,
                        dp_list_peek(<PyObject*>tasks, i), now, due,
                    )
                call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == 0:
                monitor_signal(&core.monitor, call)
                return tasks
            if code != NO_ROOM:
                self.refuse(code, k, delay_ns, now, shown)
            self.prepare(k)

    # -- claiming and running ---------------------------------------------------------------------

    cdef int claim(
        self, Seat seat, int64_t until_ns, int64_t last_id, Record** record
    ) except -1:
        """Claim the head if it is due (a worker: ``until_ns`` < 0, the clock decides)."""
        cdef Core* core = self.core
        cdef Worker* worker = &seat.worker
        cdef int64_t now, given = 0
        cdef int answer, call = CALL_NOBODY
        if core.clock_kind == USER and until_ns < 0:
            worker.seen_wake = core.monitor.wake_count
            given = self.read_clock(False)
            if given != worker.seen_now_ns:
                worker.seen_now_ns = given
                worker.backoff_ns = 0
            elif worker.leads:
                worker.backoff_ns = min(max(2 * worker.backoff_ns, 1000000), 100000000)
        monitor_lock(&core.monitor)
        now = core_now(core, given) if until_ns < 0 else until_ns
        answer = core_claim(core, worker, now, now, last_id, record, &call)
        monitor_unlock(&core.monitor)
        monitor_signal(&core.monitor, call)
        return answer

    cdef int work(self, Seat seat) except -1:
        """Claim and run until nothing is due: NOTHING, or LEAVE when nothing will ever be."""
        cdef Frame frame
        cdef Record* record = NULL
        cdef TaskBase task
        cdef int answer
        cdef int64_t now
        frame.engine = <PyObject*>self
        frame.task = NULL
        frame.worker = seat.worker.index
        dp_push_frame(&frame)
        try:
            while True:
                answer = self.claim(seat, -1, never(), &record)
                if answer != CLAIMED:
                    return answer
                task = task_at(record)
                self.run(task, seat, &frame)
                now = task.record.finished_ns
                task = None
                if self.core.clock_kind != MONOTONIC:
                    now = dp_now_ns()
                if now - seat.released_ns > HOLD_NS:
                    with nogil:
                        pass
                    seat.released_ns = dp_now_ns()
        finally:
            dp_pop_frame(&frame)

    def tick(self):
        """Manual mode: run everything that is due at entry, on this thread; how many ran."""
        cdef Core* core = self.core
        cdef Seat seat = Seat(-1)
        cdef Frame frame
        cdef Record* record = NULL
        cdef TaskBase task
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
            while self.claim(seat, now, last_id, &record) == CLAIMED:
                task = task_at(record)
                error = self.run(task, seat, &frame)
                count += 1
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    if task._failure is not None:
                        task._failure.observed = True
                    raise error
                task = None
                if dp_now_ns() - seat.released_ns > HOLD_NS:
                    with nogil:
                        pass
                    seat.released_ns = dp_now_ns()
                    PyErr_CheckSignals()
            return count
        finally:
            error = None
            dp_pop_frame(&frame)
            monitor_lock(&core.monitor)
            core.ticking = False
            monitor_unlock(&core.monitor)

    cdef object run(self, TaskBase task, Seat seat, Frame* frame):
        """Run a claimed task's body and complete it; returns the exception of the body, or None."""
        cdef PyObject* raised = NULL
        result = self.call_body(task, seat, frame, &raised)
        error = None
        if raised != NULL:
            error = <object>raised
            Py_DECREF_raw(raised)
        # Before the waiters are told: whoever has the result finds the arguments released.
        task.drop_body()
        self.finish(task, result, error)
        return error

    cdef object call_body(self, TaskBase task, Seat seat, Frame* frame, PyObject** error):
        cdef PyObject* result
        cdef object fn = task.fn
        cdef object args = task.args
        cdef object kwargs = task.kwargs
        cdef object context = task.context
        cdef bint fresh = False
        if self.copy_context:
            if context is None:
                if seat.scratch is None:
                    seat.scratch = PyContext_New()
                context = seat.scratch
                fresh = True
            PyContext_Enter(context)
        frame.task = <PyObject*>task
        result = dp_call(
            <PyObject*>fn, <PyObject*>args, NULL if kwargs is None else <PyObject*>kwargs, error
        )
        frame.task = NULL
        if self.copy_context:
            PyContext_Exit(context)
            if fresh and len(context):
                seat.scratch = None  # the body left something in it
        if result == NULL:
            return None
        value = <object>result
        Py_DECREF_raw(result)
        return value

    cdef int finish(self, TaskBase task, object result, object error) except -1:
        """The terminal transition of a task whose body has ended, and everyone told."""
        cdef Core* core = self.core
        cdef int64_t given = 0
        cdef int32_t expected = RUNNING, final
        cdef bint done = False, told = False
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
        self, TaskBase task, int state, int64_t now, Loose* loose
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

    cdef int tidy(self, TaskBase task, Loose* loose, object shake) except -1:
        """After a terminal transition, outside the monitor: tell everyone, drop what it let go."""
        cdef object name = None, handle = None
        if loose.name != NULL:
            name = <object>loose.name
            Py_DECREF_raw(loose.name)
        handle = <object>loose.handle
        Py_DECREF_raw(loose.handle)
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

    # -- cancelling ---------------------------------------------------------------------------------

    cdef int cancel_task(
        self, TaskBase task, int reason, bint bounded, int64_t later_than
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

    cdef TaskBase own(self, object task):
        """``task`` if it is a handle of this engine."""
        if not isinstance(task, TaskBase):
            if hasattr(type(task), "cancel_reason"):  # a task of the reference engine
                raise _refusals.another_scheduler(task)
            return None
        if (<TaskBase>task).engine is not self:
            raise _refusals.another_scheduler(task)
        return <TaskBase>task

    def cancel(self, task, int reason=1):
        """As ``Task.cancel``, for a handle of this engine."""
        return self.cancel_task(self.own(task), reason, False, 0) != 0

    def cancel_id(self, task_id):
        """As ``cancel``, by id; False for a task whose record has left the history."""
        cdef TaskBase task = self.find(task_id)
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
            if self.cancel_task(<TaskBase>task, reason, True, bound) == 1:
                cancelled.append(task)
        cancelled.sort(key=_order)
        return cancelled

    def request_all(self, int reason=4):
        """Ask every running body to stop; returns how many were asked now."""
        cdef Py_ssize_t count = 0
        for task in self.tasks(TaskState.RUNNING):
            if self.cancel_task(<TaskBase>task, reason, False, 0) == 1:
                count += 1
        return count

    def reschedule_ns(self, task, int64_t delay_ns, shown=None):
        """Give a QUEUED task a new due time, ``delay_ns`` from now; False once it has started."""
        cdef TaskBase mine = self.own(task)
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

    # -- asking -----------------------------------------------------------------------------------

    cdef int64_t issued(self, object task_id) except -1:
        """``task_id`` as a number that was issued; ``UnknownTask`` if it never was."""
        cdef int64_t last
        number = _refusals.task_id(task_id)
        monitor_lock(&self.core.monitor)
        last = self.core.table.next_id - 1
        monitor_unlock(&self.core.monitor)
        if number < 1 or number > last:
            raise _refusals.never_issued(number)
        return number

    cdef TaskBase find(self, object task_id):
        """The unfinished task with this id, or None."""
        cdef int64_t number
        cdef PyObject* item
        cdef Chunk chunk
        self.alive()
        number = self.issued(task_id)
        found = self.chunks.get((number - 1) >> CHUNK_BITS)
        if found is None:
            return None
        chunk = found
        monitor_lock(&self.core.monitor)
        item = dp_list_peek(<PyObject*>chunk.slots.refs, (number - 1) & (CHUNK_SIZE - 1))
        Py_INCREF_raw(item)
        monitor_unlock(&self.core.monitor)
        task = <object>item
        Py_DECREF_raw(item)
        return task

    def get(self, task_id):
        """The unfinished task with this id; ``UnknownTask`` if there is none."""
        task = self.find(task_id)
        if task is None:
            raise _refusals.ended(self.issued(task_id))
        return task

    def view(self, task_id):
        """The record of a task, unfinished or in the history; else ``UnknownTask``."""
        task = self.find(task_id)
        if task is not None:
            return self.view_record(task)
        task_id = self.issued(task_id)
        view = self.find_ended(task_id)
        if view is None:
            raise _refusals.evicted(task_id, self.config.history)
        return view

    def view_of(self, task):
        """The record behind a handle of this engine, whatever its age."""
        return self.view_record(self.own(task))

    cdef object view_record(self, TaskBase task):
        cdef Record record
        self.alive()
        monitor_lock(&self.core.monitor)
        record = task.record
        monitor_unlock(&self.core.monitor)
        return TaskView(
            record.id,
            task.name,
            STATES[record.state],
            None if record.worker == -2 else record.worker,
            record.due_ns,
            record.submitted_ns,
            None if record.started_ns < 0 else record.started_ns,
            None if record.finished_ns < 0 else record.finished_ns,
        )

    cdef object ended_view(self, Ended* entry, object name):
        return TaskView(
            entry.id,
            name,
            STATES[entry.state],
            None if entry.worker == -2 else entry.worker,
            entry.due_ns,
            entry.submitted_ns,
            None if entry.started_ns < 0 else entry.started_ns,
            entry.finished_ns,
        )

    cdef object find_ended(self, int64_t task_id):
        """The record of an ended task from the history, or None. Looks at it in slices, so that the
        monitor is held for a constant time; a record that is there at the start and not overwritten
        meanwhile is found, since records never move."""
        cdef Core* core = self.core
        cdef Ended entry
        cdef int64_t start = 0, i, stop
        cdef PyObject* item = NULL
        while start < core.table.history:
            monitor_lock(&core.monitor)
            stop = min(start + SLICE, core.table.history)
            for i in range(start, stop):
                if core.table.ring[i].id == task_id:
                    entry = core.table.ring[i]
                    if self.names is not None:
                        item = dp_list_peek(<PyObject*>self.names, i)
                        Py_INCREF_raw(item)
                    break
            else:
                i = -1
            monitor_unlock(&core.monitor)
            if i >= 0:
                return self.ended_view(&entry, taken(item))
            start = stop
        return None

    def finished_since(self, int64_t mark):
        """Views of the tasks that ended after the first ``mark``, in that order, as far as the
        history reaches."""
        cdef Core* core = self.core
        cdef Ended entries[64]
        cdef PyObject* names[64]
        cdef int64_t count, i, place
        cdef list views = []
        self.alive()
        if core.table.history == 0:
            return views
        while True:
            count = 0
            monitor_lock(&core.monitor)
            mark = max(mark, core.table.ended - core.table.history)
            while count < SLICE and mark < core.table.ended:
                place = mark % core.table.history
                entries[count] = core.table.ring[place]
                names[count] = NULL
                if self.names is not None:
                    names[count] = dp_list_peek(<PyObject*>self.names, place)
                    Py_INCREF_raw(names[count])
                mark += 1
                count += 1
            monitor_unlock(&core.monitor)
            if count == 0:
                return views
            for i in range(count):
                views.append(self.ended_view(&entries[i], taken(names[i])))

    def tasks(self, state=None):
        """The unfinished tasks (in ``state``, if given), by id."""
        cdef list found = []
        cdef PyObject* items[64]
        cdef Chunk chunk
        cdef int i
        self.alive()
        if state is not None and not isinstance(state, TaskState):
            raise _refusals.bad_state(state)
        wanted = -1 if state is None else int(state)
        for block in sorted(self.chunks):
            chunk = self.chunks.get(block)
            if chunk is None:
                continue
            monitor_lock(&self.core.monitor)
            for i in range(CHUNK_SIZE):
                items[i] = dp_list_peek(<PyObject*>chunk.slots.refs, i)
                Py_INCREF_raw(items[i])
            monitor_unlock(&self.core.monitor)
            for i in range(CHUNK_SIZE):
                task = taken(items[i])
                if task is not None and (
                    state is None or dp_load32(&(<TaskBase>task).record.state) == wanted
                ):
                    if not terminal(dp_load32(&(<TaskBase>task).record.state)):
                        found.append(task)
        return found

    def counts(self):
        """Every counter, read at one instant."""
        cdef Core* core = self.core
        cdef int64_t lateness[LATENESS_BUCKETS]
        cdef int64_t numbers[6]
        cdef int64_t admitted, rejected, max_queued, wakeups, clock_errors, total, largest
        cdef int32_t live, inside
        cdef bint closed
        cdef int i, used = 0
        self.alive()
        monitor_lock(&core.monitor)
        for i in range(6):
            numbers[i] = core.table.counts[i]
        admitted = core.table.next_id - 1
        rejected = core.admission.rejected
        max_queued = core.table.max_queued
        wakeups = core.monitor.wakeups
        clock_errors = core.clock_errors
        live = core.live
        inside = core.inside + core.blocked
        closed = core.admission.closed
        total = core.lateness_total_ns
        largest = core.lateness_max_ns
        for i in range(LATENESS_BUCKETS):
            lateness[i] = core.lateness[i]
        monitor_unlock(&core.monitor)
        for i in range(LATENESS_BUCKETS):
            if lateness[i]:
                used = i + 1
        return Counts(
            numbers[QUEUED],
            numbers[RUNNING],
            numbers[CANCEL_REQUESTED],
            numbers[SUCCEEDED],
            numbers[FAILED],
            numbers[CANCELLED],
            admitted,
            rejected,
            max_queued,
            wakeups,
            clock_errors,
            live,
            inside,
            bool(closed),
            total,
            largest,
            tuple([lateness[i] for i in range(used)]),
        )

    # -- shutting down ------------------------------------------------------------------------------

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
        self.latch.notify()
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
            self.fail_queued(<TaskBase>task, error)

    cdef int fail_queued(self, TaskBase task, object error) except -1:
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

    def runs_here(self):
        """Is the calling thread a worker of this engine, or inside its ``tick()``?"""
        return frame_of(self) != NULL

    def try_block(self):
        """Count this worker as blocked on something; DEADLOCK if that leaves nobody."""
        cdef Core* core = self.core
        cdef Frame* frame = frame_of(self)
        cdef int answer = WAIT_COUNTED
        if frame == NULL:
            return WAIT_FREE
        self.alive()
        monitor_lock(&core.monitor)
        if frame.worker < 0 or core.blocked + core.inside + 1 >= core.live:
            answer = WAIT_DEADLOCK
        else:
            core.blocked += 1
        monitor_unlock(&core.monitor)
        return answer

    def end_block(self):
        """Uncount a worker that ``try_block`` counted."""
        monitor_lock(&self.core.monitor)
        self.core.blocked -= 1
        monitor_unlock(&self.core.monitor)

    def enter_inside(self):
        """An own worker begins to wait inside ``shutdown()``."""
        self.alive()
        monitor_lock(&self.core.monitor)
        self.core.inside += 1
        monitor_unlock(&self.core.monitor)
        self.latch.notify()

    def leave_inside(self):
        """An own worker has waited inside ``shutdown()``."""
        monitor_lock(&self.core.monitor)
        self.core.inside -= 1
        monitor_unlock(&self.core.monitor)

    def drop(self):
        """The scheduler died without a shutdown: what was accepted still runs."""
        cdef Core* core = self.core
        cdef bint unfinished
        if core.generation != fork_generation or self.max_workers == 0:
            return
        self.close(0)
        monitor_lock(&core.monitor)
        unfinished = core_unfinished(core)
        monitor_unlock(&core.monitor)
        if unfinished:
            self.handle.keep(self)


def _order(task):
    return task.due_ns, task.id


cdef object taken(PyObject* item):
    """The object of a counted reference, which is given up; None for NULL."""
    if item == NULL:
        return None
    value = <object>item
    Py_DECREF_raw(item)
    return value


cdef TaskBase task_at(Record* record):
    """The handle of a task that this thread has just claimed."""
    return <TaskBase>dp_list_peek(
        <PyObject*>record.slots.refs, (record.id - 1) & (CHUNK_SIZE - 1)
    )


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
        return engine.admit(
            None, DUE_AFTER, delay_of(engine, delay), fn, args, kwargs if kwargs else None, delay
        )

    def submit_at_ns(self, due_ns, fn, /, *args, **kwargs):
        """Run ``fn`` at the instant ``due_ns`` of the scheduler's clock."""
        cdef int64_t due = instant_ns(due_ns, "due_ns")
        return ready(self).admit(None, DUE_AT, due, fn, args, kwargs if kwargs else None, due_ns)

    def submit_many(self, calls, delay=0):
        """Admit each of ``calls``, all or none, due ``delay`` seconds from now."""
        cdef Engine engine = ready(self)
        return engine.submit_many_as(None, calls, delay_of(engine, delay), delay)

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
        for item in items:
            if engine.own(item) is None:
                engine.issued(item)
        for item in items:
            task = engine.own(item)
            if (engine.cancel_id(item) if task is None
                    else engine.cancel_task(task, 1, False, 0) != 0):
                count += 1
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
