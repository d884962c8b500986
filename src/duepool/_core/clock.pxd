"""The time cell of a manual clock: read atomically, with or without the GIL."""

from libc.stdint cimport int64_t

cdef struct CellMemory:
    int64_t references     # atomic
    int64_t now_ns         # atomic

cdef class Cell:
    cdef CellMemory* memory

cdef void cell_release(CellMemory* memory) noexcept nogil
