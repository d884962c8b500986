"""See ``ending.pyx``."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from .intake cimport Intake
from .task cimport TaskFields

cdef struct Loose:
    # What a terminal transition let go under the monitor, to be dropped after unlocking.
    PyObject* handle
    PyObject* name
    int64_t dead_block     # a block whose chunk is done, -1 for none
    int call               # whom to signal
    bint notify            # a closed engine has nothing left to do


cdef class Ending(Intake):
    cdef object finish(self, TaskFields task, object result, object error)
    cdef object notify(self)
    cdef object shake_hands(self, TaskFields task, object shake)
    cdef bint on_worker(self) noexcept
    cdef int cancel_task(
        self, TaskFields task, int reason, bint bounded, int64_t later_than) except -1
    cdef int fail_queued(self, TaskFields task, object error) except -1
    cdef void end_locked(
        self, TaskFields task, int state, int64_t now, Loose* loose) noexcept nogil
    cdef object tidy(self, TaskFields task, Loose* loose, object shake)


cdef object tell(object watchers, TaskFields task)
cdef object interruption(object error, object source, TaskFields task)
