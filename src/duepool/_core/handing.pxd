"""See ``handing.pyx``."""

from .running cimport Running
from .task cimport TaskFields


cdef class Handing(Running):
    cdef bint concludes(self, TaskFields task) noexcept nogil
    cdef int run_here(self, TaskFields task) except -1
