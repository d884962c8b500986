"""See ``intake.pyx``."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from .places cimport Places
from .task cimport TaskFields
from .types cimport Record


cdef struct Loose:
    # What a terminal transition let go under the monitor, to be dropped after unlocking.
    PyObject* handle
    PyObject* name
    int64_t dead_block     # a block whose chunk is done, -1 for none
    int call               # whom to signal
    bint notify            # a closed engine has nothing left to do


cdef class Intake(Places):
    # What the workers hold of the engine; an engine.Handle. Constant.
    cdef readonly object handle

    cdef TaskFields new_task(self, object name, object fn, object args, object kwargs)
    cdef object admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown, int32_t tenant=?, int mode=?, object context=?)
    cdef object submit_bodies(
        self, object name, list bodies, int64_t delay_ns, object shown, int32_t tenant=?,
        int mode=?)
    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due, int mode) noexcept nogil
    cdef int tidy_dropped(self, TaskFields task, Loose* loose) except -1
    cdef void drop_locked(self, TaskFields task, int64_t now, Loose* loose) noexcept nogil
    cdef int refuse(
        self, int code, int64_t k, int64_t value, int64_t now, object shown, int32_t tenant
    ) except -1
    cdef int prepare(self, int64_t k) except -1
    cdef int add_chunk(self) except -1
    cdef int add_segment(self, int64_t nodes) except -1
    cdef int hire(self, int64_t k) except -1
