# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
"""The time cell of a manual clock, and the real monotonic clock.

The cell's memory is reference-counted on its own, so that a worker that is detached from the
interpreter can read it whatever became of the clock. It never goes back: ``add`` and ``raise_to``
are atomic.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from .platform cimport dp_add64, dp_cas64, dp_load64, dp_now_ns
from .types cimport never


cdef object MAX_NS = 2**63 - 1


cdef void cell_release(CellMemory* memory) noexcept nogil:
    """Give one count back; the last frees."""
    if memory != NULL and dp_add64(&memory.references, -1) == 0:
        free(memory)


cdef class Cell:
    """An instant in nanoseconds that only grows."""

    def __cinit__(self, int64_t start_ns):
        self.memory = <CellMemory*>malloc(sizeof(CellMemory))
        if self.memory == NULL:
            raise MemoryError()
        self.memory.references = 1
        self.memory.now_ns = start_ns

    def __dealloc__(self):
        cell_release(self.memory)

    def load(self):
        """The instant, in nanoseconds."""
        return dp_load64(&self.memory.now_ns)

    def add(self, ns):
        """Go on by ``ns`` >= 0 nanoseconds; returns the new instant.

        Raises ``OverflowError`` past 2**63-1, and stays.
        """
        cdef int64_t old, step
        if ns > MAX_NS:
            raise OverflowError(f"cannot go on by {ns} ns: past the last instant 2**63-1 ns")
        step = ns
        while True:
            old = dp_load64(&self.memory.now_ns)
            if step > never() - old:
                raise OverflowError(
                    f"cannot advance the clock by {ns} ns from {old}: past the last instant 2**63-1"
                )
            if dp_cas64(&self.memory.now_ns, old, old + step):
                return old + step

    def raise_to(self, int64_t ns):
        """Go on to the instant ``ns``; False, and it stays, if that is before now."""
        cdef int64_t old
        while True:
            old = dp_load64(&self.memory.now_ns)
            if ns < old:
                return False
            if dp_cas64(&self.memory.now_ns, old, ns):
                return True


def monotonic_ns():
    """The real monotonic clock that timed waits use, in nanoseconds."""
    return dp_now_ns()
