"""See ``ending.pyx``."""

from libc.stdint cimport int64_t

from .intake cimport Intake, Loose
from .task cimport TaskFields

cdef class Ending(Intake):
    cdef object finish(self, TaskFields task, object result, object error)
    cdef object notify(self)
    cdef object move(self, TaskFields mine, int64_t value, bint absolute, object shown)
    cdef object shake_hands(self, TaskFields task, object shake)
    cdef int cancel_task(
        self, TaskFields task, int reason, bint bounded, int64_t later_than) except -1
    cdef int fail_queued(self, TaskFields task, object error) except -1
    cdef void end_locked(
        self, TaskFields task, int state, int64_t now, Loose* loose) noexcept nogil
    cdef object tidy(self, TaskFields task, Loose* loose, object shake)


cdef object tell(object watchers, TaskFields task)
cdef object interruption(object error, object source, TaskFields task)
