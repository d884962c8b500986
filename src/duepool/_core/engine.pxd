"""The classes of the compiled engine; what each field is guarded by.

``monitor``: the engine's lock. ``own section``: the critical section of the object itself, which is
the GIL where there is one. ``owner``: the one thread that brought the task into its present state:
the submitter before admission, the claimer or the canceller after.
"""

from libc.stdint cimport int64_t

from cpython.object cimport PyObject

from .core cimport Core, Worker
from .table cimport Ended
from .task cimport TaskFields
from .types cimport Record, Slots

cdef extern from "pyslots.h":
    ctypedef struct Frame "dp_frame":
        PyObject* engine
        PyObject* task
        Frame* below
        int worker

cdef struct Loose:
    # What a terminal transition let go under the monitor, to be dropped after unlocking.
    PyObject* handle
    PyObject* name
    int64_t dead_block     # a block whose chunk is done, -1 for none
    int call               # whom to signal
    bint notify            # a closed engine has nothing left to do


cdef class Chunk:
    cdef Slots slots              # monitor
    cdef list refs                # constant; its items: monitor


cdef class Seat:
    # What one worker, or one tick(), needs between bodies; nobody else touches it.
    cdef Worker worker
    cdef object scratch           # an empty context for bodies that stored none
    cdef int64_t released_ns      # real time of the last moment without the GIL


cdef class TaskBase(TaskFields):
    pass


cdef class Handle:
    cdef Core* core               # constant
    cdef object weak              # constant; weak reference to the engine
    cdef object strong            # own section; the engine while it drains without its face
    cdef object latch_            # constant
    cdef object __weakref__

    cdef int leave(self, Seat seat) except -1


cdef class Engine:
    cdef Core* core               # constant
    cdef readonly Handle handle   # constant
    cdef readonly object clock    # constant
    cdef readonly object config   # constant
    cdef readonly int max_workers # constant
    cdef object task_type         # constant
    cdef object crew              # constant
    cdef object latch             # constant
    cdef bint copy_context        # constant
    cdef dict chunks              # own lock of the dict; block -> Chunk
    cdef list names               # own section until set, its items: monitor; None until needed
    cdef int64_t next_block       # preparing
    cdef Slots* tail              # monitor; the chunk that gives the next id, NULL if none is ready
    cdef Slots* newest            # monitor; the last prepared chunk
    cdef bint clock_reported      # own section
    cdef readonly object broken   # own section; the initializer's exception
    cdef object __weakref__

    cdef TaskBase new_task(self, object name, object fn, object args, object kwargs)
    cdef TaskBase admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown)
    cdef int refuse(self, int code, int64_t k, int64_t value, int64_t now, object shown) except -1
    cdef int prepare(self, int64_t k) except -1
    cdef int add_chunk(self) except -1
    cdef int add_segment(self, int64_t nodes) except -1
    cdef int hire(self, int64_t k) except -1
    cdef int64_t read_clock(self, bint strict) except -1
    cdef int alive(self) except -1
    cdef int claim(self, Seat seat, int64_t until_ns, int64_t last_id, Record** record) except -1
    cdef int work(self, Seat seat) except -1
    cdef object run(self, TaskBase task, Seat seat, Frame* frame)
    cdef object call_body(self, TaskBase task, Seat seat, Frame* frame, PyObject** error)
    cdef int finish(self, TaskBase task, object result, object error) except -1
    cdef int cancel_task(
        self, TaskBase task, int reason, bint bounded, int64_t later_than) except -1
    cdef int fail_queued(self, TaskBase task, object error) except -1
    cdef void end_locked(self, TaskBase task, int state, int64_t now, Loose* loose) noexcept nogil
    cdef int tidy(self, TaskBase task, Loose* loose, object shake) except -1
    cdef TaskBase find(self, object task_id)
    cdef object view_record(self, TaskBase task)
    cdef object find_ended(self, int64_t task_id)
    cdef TaskBase own(self, object task)
    cdef int64_t issued(self, object task_id) except -1
    cdef object ended_view(self, Ended* entry, object name)
    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due) noexcept nogil


cdef class SchedulerBase:
    cdef readonly Engine _engine
