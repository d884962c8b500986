"""See ``running.pyx``."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from .core cimport Worker
from .ending cimport Ending
from .task cimport TaskFields
from .types cimport Record

cdef extern from "frames.h":
    ctypedef struct Frame "dp_frame":
        PyObject* engine
        PyObject* task
        Frame* below
        int worker
        bint concluded


cdef enum:
    # Frame.worker of a body that runs neither on an own worker nor in tick().
    ELSEWHERE = -3


cdef class Seat:
    # What one worker, or one tick(), needs between bodies; nobody else touches it.
    cdef Worker worker
    cdef object scratch           # an empty context for bodies that stored none
    cdef object result            # of the body that has just ended, None if it raised
    cdef object error             # its exception, or None
    cdef object interrupt         # a KeyboardInterrupt met while the last end was told
    cdef int64_t released_ns      # real time of the last moment without the GIL


cdef class Running(Ending):
    cdef int claim(self, Seat seat, int64_t until_ns, int64_t last_id, Record** record) except -1
    cdef int work(self, Seat seat) except -1
    cdef int serve(
        self, TaskFields task, Seat seat, Frame* frame, Record** following) except -1
    cdef bint perform(self, TaskFields task, Seat seat, Frame* frame) except -1
    cdef int settle(self, TaskFields task, Seat seat) except -1
    cdef int dispatch(self, Seat seat, Frame* frame) except -1
    cdef int give(self, TaskFields task, Seat seat, Frame* frame) except -1
    cdef int call_framed(self, object prepare, int index) except -1
    cdef object call_body(self, TaskFields task, Seat seat, Frame* frame, PyObject** error)


cdef void push_frame(Frame* frame) noexcept nogil
cdef void pop_frame(Frame* frame) noexcept nogil
cdef Frame* top_frame() noexcept nogil
cdef TaskFields task_at(Record* record)
cdef Frame* frame_of(object engine) noexcept
