"""See ``lookup.pyx``."""

from libc.stdint cimport int64_t

from .base cimport EngineBase
from .table cimport Ended
from .task cimport TaskFields


cdef class Lookup(EngineBase):
    cdef TaskFields own(self, object task)
    cdef TaskFields mine(self, object task)
    cdef int64_t issued(self, object task_id) except -1
    cdef TaskFields find(self, object task_id)
    cdef object view_record(self, TaskFields task)
    cdef object ended_view(self, Ended* entry, object name)
    cdef object find_ended(self, int64_t task_id)
