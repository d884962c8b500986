# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
# cython: freethreading_compatible=True
"""A task's handle, as far as it needs no engine: its fields, its state, and who watches it.

Guarantee for watchers. ``_watch`` reads the state and adds inside the handle's own section; a
completer stores the terminal state first and takes the watchers inside that section after. So
either the completer finds the watcher, or the watcher finds the task terminal: none is lost, and
none is called twice. The same holds for the watchers of a cancel request.
"""

cimport cython
from libc.stdint cimport int32_t

from .platform cimport dp_load32
from .types cimport CANCEL_REQUESTED, CANCELLED, FAILED, FRESH, QUEUED, RUNNING, SUCCEEDED

from duepool._values import REASONS as _REASONS
from duepool._values import TaskState as _TaskState

cdef tuple STATES = tuple(_TaskState)
cdef tuple REASONS = _REASONS


cdef class TaskFields:
    """The fields of a handle; ``engine.TaskBase`` adds what needs the engine."""

    def __cinit__(self):
        self.record.id = 0
        self.record.started_ns = -1
        self.record.finished_ns = -1
        self.record.place = -1
        self.record.slots = NULL
        self.record.state = FRESH
        self.record.worker = -2
        self.record.blocked = 0
        self.record.tenant = -1
        self.record.reason = 0
        self.record.flags = 0

    @property
    def id(self):
        """1, 2, 3 … in the order of admission; the tie-break of equal due times."""
        return self.record.id

    @property
    def due_ns(self):
        """The instant on the scheduler's clock before which it does not start, in nanoseconds."""
        return self.record.due_ns

    @property
    def state(self):
        """Where the task stands, a ``TaskState``."""
        cdef int32_t state = dp_load32(&self.record.state)
        if state == FRESH:
            raise RuntimeError("this task was never admitted")
        return STATES[state]

    @property
    def cancel_reason(self):
        """Why it was cancelled or asked to stop; else None."""
        return REASONS[self.record.reason]

    def done(self):
        """True once the task has SUCCEEDED, FAILED or is CANCELLED."""
        return SUCCEEDED <= dp_load32(&self.record.state) <= CANCELLED

    def running(self):
        """True while the body runs, asked to stop or not."""
        cdef int32_t state = dp_load32(&self.record.state)
        return state == RUNNING or state == CANCEL_REQUESTED

    def cancelled(self):
        """True only in CANCELLED."""
        return dp_load32(&self.record.state) == CANCELLED

    @property
    def _result(self):
        return self.outcome if dp_load32(&self.record.state) == SUCCEEDED else None

    @property
    def _failure(self):
        cdef int32_t state = dp_load32(&self.record.state)
        return self.outcome if state == FAILED or state == CANCELLED else None

    @property
    @cython.critical_section
    def _handshake(self):
        return self.shake

    @cython.critical_section
    def _unwatch(self, watcher):
        if self.watchers is None:
            return False
        return discard(self.watchers, watcher)

    @cython.critical_section
    def _watch_request(self, watcher):
        cdef int32_t state = dp_load32(&self.record.state)
        if state != QUEUED and state != RUNNING:
            return False
        if self.requested is None:
            self.requested = [watcher]
        else:
            (<list>self.requested).append(watcher)
        return True

    @cython.critical_section
    def _unwatch_request(self, watcher):
        if self.requested is None:
            return False
        return discard(self.requested, watcher)

    cdef object take_body(self):
        """The body and its arguments, which the task has no more; by the owner, once."""
        body = (self.fn, self.args, self.kwargs, self.context)
        self.drop_body()
        return body

    cdef int drop_body(self) except -1:
        """Release the body and its arguments; by the owner, once."""
        self.fn = None
        self.args = None
        self.kwargs = None
        self.context = None
        return 0

    @cython.critical_section
    cdef object take_watchers(self):
        """Everyone to be told of the end, in the order of adding; after the terminal state."""
        watchers = self.watchers
        self.watchers = None
        return watchers

    @cython.critical_section
    cdef object take_requested(self):
        """Everyone to be told of the cancel request; after that state, or after the end."""
        watchers = self.requested
        self.requested = None
        return watchers


cdef bint discard(list watchers, object watcher) except -1:
    cdef Py_ssize_t i
    for i in range(len(watchers)):
        if watchers[i] is watcher:
            del watchers[i]
            return True
    return False
