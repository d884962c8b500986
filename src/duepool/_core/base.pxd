"""Fields of the engine, and what each is guarded by.

``monitor``: the engine's lock. ``own section``: the critical section of the object itself, which is
the GIL where there is one. ``owner``: the one thread that brought the task into its present state:
the submitter before admission, the claimer or the canceller after.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from .core cimport Core
from .types cimport Slots


cdef class Chunk:
    cdef Slots slots              # monitor
    cdef list refs                # constant; its items: monitor


cdef class EngineBase:
    cdef Core* core               # constant
    cdef readonly object clock    # constant
    cdef readonly object config   # constant
    cdef readonly int max_workers  # constant
    cdef object task_type         # constant
    cdef object crew              # constant
    cdef object latch             # constant
    cdef bint copy_context        # constant
    cdef bint coroutines          # constant; a body may be a coroutine function
    cdef object on_full           # constant; asked before a full queue refuses, or None
    cdef object call_hook         # constant; called in place of a body, or None
    cdef object hand              # constant; takes bodies to an injected executor, or None
    cdef object room              # constant; told when a place gets free, or None
    cdef dict chunks              # the dict's own lock; block -> Chunk
    cdef list names               # monitor, its items too; None until needed, then constant
    cdef int64_t next_block       # monitor; the block of the next chunk to be prepared
    cdef Slots* tail              # monitor; the chunk that gives the next id, NULL if none is ready
    cdef Slots* newest            # monitor; the last prepared chunk that is not used up, or NULL
    cdef bint clock_reported      # own section
    cdef readonly object broken   # own section; the initializer's exception
    cdef object __weakref__

    cdef int alive(self) except -1
    cdef int64_t read_clock(self, bint strict) except -1


cdef int64_t generation_now() noexcept nogil
cdef void core_release(Core* core) noexcept nogil
cdef object taken(PyObject* item)
