"""The fields of a task's handle; what each is guarded by (see ``engine.pxd`` for the words)."""

from libc.stdint cimport int32_t

from .types cimport CANCELLED, SUCCEEDED, Record


cdef class TaskFields:
    cdef Record record            # monitor
    cdef object engine            # constant once made; an Engine
    cdef object fn                # owner
    cdef object args              # owner
    cdef object kwargs            # owner; None for none
    cdef object context           # owner; None for an empty one
    cdef object outcome           # owner until the task is terminal, constant after
    cdef readonly object name     # constant
    cdef object watchers          # own section; None or a list
    cdef object requested         # own section; None or a list
    cdef object shake             # own section; set once

    cdef int drop_body(self) except -1
    cdef object take_body(self)
    cdef object take_watchers(self)
    cdef object take_requested(self)


cdef inline bint terminal(int32_t state) noexcept nogil:
    return SUCCEEDED <= state <= CANCELLED
