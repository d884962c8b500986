"""See ``intake.pyx``."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from .lookup cimport Lookup
from .task cimport TaskFields
from .types cimport Record


cdef class Intake(Lookup):
    # What the workers hold of the engine; an engine.Handle. Constant.
    cdef readonly object handle

    cdef TaskFields new_task(self, object name, object fn, object args, object kwargs)
    cdef TaskFields admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown)
    cdef list submit_bodies(self, object name, list bodies, int64_t delay_ns, object shown)
    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due) noexcept nogil
    cdef int refuse(self, int code, int64_t k, int64_t value, int64_t now, object shown) except -1
    cdef int prepare(self, int64_t k) except -1
    cdef int add_chunk(self) except -1
    cdef int add_segment(self, int64_t nodes) except -1
    cdef int hire(self, int64_t k) except -1
