"""See ``places.pyx``."""

from .lookup cimport Lookup

cdef enum:
    # How often a step is begun again that a signal cut short.
    PATIENCE = 100
    # By how many frames the recursion limit gives way to a step that must not fail.
    ROOM = 200


cdef object insist(object step, tuple first, tuple again)


cdef class Places(Lookup):
    cdef bint on_worker(self) noexcept
    cdef object tell_room(self)
