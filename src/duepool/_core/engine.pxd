"""The top classes of the compiled engine; for the words of the guards see ``base.pxd``."""

from .core cimport Core
from .handing cimport Handing
from .running cimport Seat
from .task cimport TaskFields


cdef class TaskBase(TaskFields):
    pass


cdef class Handle:
    cdef Core* core               # constant
    cdef object weak              # constant; weak reference to the engine
    cdef object strong            # own section; the engine while it drains without its face
    cdef object latch_            # constant
    cdef object __weakref__

    cdef int leave(self, Seat seat) except -1


cdef class Engine(Handing):
    pass


cdef class SchedulerBase:
    cdef readonly Engine _engine
