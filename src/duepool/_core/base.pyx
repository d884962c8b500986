# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""The engine's bottom: the C core's memory, the fork generation, and the clock.

On ``EngineBase`` stand, each in a module of its own: ``lookup`` (finding and reporting), ``intake``
(admission), ``ending`` (terminal transitions), and ``engine`` (claiming, running, shutdown).
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from .admission cimport Quota, admission_init
from .clock cimport Cell, cell_release
from .core cimport MANUAL, MONOTONIC, USER, Core, core_now
from .heap cimport heap_at, heap_init
from .monitor cimport (
    monitor_destroy,
    monitor_init,
    monitor_lock,
    monitor_recall,
    monitor_signal,
    monitor_unlock,
)
from .platform cimport dp_add64, dp_aligned_free, dp_load64, dp_now_ns, dp_watch_forks
from .table cimport Ended, table_init
from .types cimport CHUNK_SIZE, never

from duepool import _refusals
from duepool._outcome import report_clock
from duepool._values import clock_kind
from duepool.errors import ClockError

cdef object MAX_NS = 2**63 - 1

cdef extern from "Python.h":
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

# Bumped in the child of every fork; an engine of another generation is never locked nor freed.
cdef int64_t fork_generation = 1


if dp_watch_forks(&fork_generation):
    raise OSError("the platform does not tell of forks")


cdef int64_t generation_now() noexcept nogil:
    """The fork generation of this process."""
    return fork_generation


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


cdef Quota* quotas_new(tuple limits) except NULL:
    cdef Quota* quotas = <Quota*>calloc(len(limits), sizeof(Quota))
    cdef Py_ssize_t i
    if quotas == NULL:
        raise MemoryError(f"no memory for {len(limits)} quotas")
    for i in range(len(limits)):
        quotas[i].limit = limits[i]
    return quotas


cdef void core_release(Core* core) noexcept nogil:
    """Give one count back; the last frees. Not in the child of a fork: there it leaks."""
    cdef int k
    if dp_add64(&core.references, -1):
        return
    monitor_destroy(&core.monitor)
    for k in range(core.heap.segment_count):
        dp_aligned_free(core.heap.segments[k])
    free(core.table.ring)
    free(core.admission.quotas)
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


cdef object taken(PyObject* item):
    """The object of a counted reference, which is given up; None for NULL."""
    if item == NULL:
        return None
    value = <object>item
    Py_DECREF_raw(item)
    return value


cdef class EngineBase:
    """One core and its clock."""

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
        if config.quotas:
            core.admission.quotas = quotas_new(config.quotas)
        core.has_policy = config.overload is not None
        core.hands_over = config.hand is not None
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
        self.coroutines = config.coroutines
        self.on_full = config.overload
        self.call_hook = config.call
        self.hand = config.hand
        self.room = config.room
        self.chunks = {}
        self.tail = NULL
        self.newest = NULL
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
        if self.core == NULL:
            raise RuntimeError("this engine was never opened")
        if self.core.generation != fork_generation:
            raise _refusals.forked()
        return 0

    cdef int64_t read_clock(self, bint strict) except -1:
        """A reading of the user's clock, outside the monitor. Not strict: the last known time
        stands in for one that fails, which is counted, and logged once."""
        cdef Core* core = self.core
        cdef int64_t before = dp_load64(&core.last_now_ns)
        cdef int64_t now
        try:
            value = self.clock.now_ns()
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NS:
                raise _refusals.clock_value(self.clock, value)
            now = value
            if now < before:
                raise _refusals.clock_back(self.clock, before, now)
            return now
        except BaseException as error:
            if strict and not isinstance(error, Exception):
                raise
            monitor_lock(&core.monitor)
            core.clock_errors += 1
            monitor_unlock(&core.monitor)
            if strict:
                if isinstance(error, ClockError):
                    raise
                raise _refusals.clock_raised(self.clock, error) from error
            # Not strict means that nothing may come in between: not even a report that fails.
            if not self.clock_reported:
                self.clock_reported = True
                try:
                    report_clock(self.clock, error)
                except BaseException:
                    pass
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
