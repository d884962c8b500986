# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Places of the capacity: what a job holds, who waits in line for one, and which task gives way.

Guarantee: whoever waits counts itself in a line under the monitor before it looks once more, and
whoever gives a place back looks at that count after. Being told is a hint: the waiter looks again.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from .admission cimport (
    ADMITTED,
    admission_line,
    admission_release,
    admission_take,
    admission_verdict,
)
from .base cimport generation_now, taken
from .core cimport AHEAD, ENTER, Core
from .heap cimport heap_at, heap_first_held, node_before
from .lookup cimport Lookup
from .monitor cimport monitor_lock, monitor_unlock
from .types cimport CHUNK_SIZE, SLOTLESS, Node

cdef extern from "pyslots.h":
    void dp_give_way(int by)
    PyObject* dp_list_peek(PyObject* items, Py_ssize_t index) nogil

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil

# How many nodes of the heap are looked at in one hold of the monitor.
cdef int64_t SLICE = 256


cdef object insist(object step, tuple first, tuple again):
    """Call ``step(*first)``, begun anew as ``step(*again)`` if a signal or the recursion limit cuts
    it short; returns the exception that did, if it is to be raised in the end."""
    cdef int attempt
    interrupt = None
    for attempt in range(PATIENCE):
        if attempt:
            dp_give_way(ROOM)
        try:
            step(*(again if attempt else first))
            return interrupt
        except RecursionError:
            pass
        except BaseException as error:
            interrupt = error
        finally:
            if attempt:
                dp_give_way(-ROOM)
    return interrupt


cdef class Places(Lookup):
    """The places of one engine."""

    cdef bint on_worker(self) noexcept:
        """Is this thread one of the engine's workers? Told by ``running``."""
        return False

    cdef object tell_room(self):
        """A place has got free while somebody waits for one: let him look; as ``insist``."""
        return None if self.room is None else insist(self.room.notify, (), ())

    def take_slot(self, int32_t tenant=-1, int mode=ENTER):
        """Take a place for a job: 0, or 1 closed, 2 or 3 full (3: the tenant's quota). A refusal is
        counted under ENTER."""
        cdef Core* core = self.core
        cdef int answer
        self.alive()
        monitor_lock(&core.monitor)
        answer = admission_verdict(&core.admission, 1, tenant, mode == AHEAD)
        if answer == ADMITTED:
            admission_take(&core.admission, 1, tenant)
        elif mode == ENTER:
            core.admission.rejected += 1
        monitor_unlock(&core.monitor)
        return answer

    def room_for(self, int64_t k, int32_t tenant=-1):
        """Is there room for ``k`` more, minding nobody in line? 0, or why not, as ``take_slot``."""
        cdef int answer
        self.alive()
        monitor_lock(&self.core.monitor)
        answer = admission_verdict(&self.core.admission, k, tenant, True)
        monitor_unlock(&self.core.monitor)
        return answer

    def enter_line(self, int32_t tenant=-1):
        """One more waits for the capacity, or for a tenant's quota."""
        self.alive()
        monitor_lock(&self.core.monitor)
        admission_line(&self.core.admission, tenant, 1)
        monitor_unlock(&self.core.monitor)

    def leave_line(self, int32_t tenant=-1):
        """One less does."""
        if self.core.generation != generation_now():
            return
        monitor_lock(&self.core.monitor)
        admission_line(&self.core.admission, tenant, -1)
        monitor_unlock(&self.core.monitor)

    def free_slot(self, int32_t tenant=-1):
        """Give back the place that a job held."""
        cdef Core* core = self.core
        if core.generation != generation_now():
            return
        monitor_lock(&core.monitor)
        admission_release(&core.admission, 1, tenant)
        monitor_unlock(&core.monitor)
        if core.admission.in_line:
            interrupt = self.tell_room()
            if interrupt is not None and not self.on_worker():
                raise interrupt

    def oldest(self, int32_t tenant=-1):
        """The QUEUED task that is first by (due, id) among those that hold a place (of a tenant's
        quota); None without one. For a tenant it looks at the heap in slices: what moves meanwhile
        may be missed."""
        cdef Core* core = self.core
        cdef Node best, node
        cdef int64_t start = 0, i, stop
        cdef PyObject* item
        cdef bint better
        found = None
        best.record = NULL
        self.alive()
        while True:
            item = NULL
            better = False
            monitor_lock(&core.monitor)
            if tenant < 0:
                stop = core.heap.size
                best.record = heap_first_held(&core.heap)
                better = best.record != NULL
            else:
                stop = min(start + SLICE, core.heap.size)
                for i in range(start, stop):
                    node = heap_at(&core.heap, i)[0]
                    if node.record.tenant != tenant or node.record.flags & SLOTLESS:
                        continue
                    # An earlier slice's best is held by `found`, so that its record is there.
                    if best.record == NULL or node_before(&node, &best):
                        best = node
                        better = True
            if better:
                item = dp_list_peek(
                    <PyObject*>best.record.slots.refs, (best.record.id - 1) & (CHUNK_SIZE - 1)
                )
                Py_INCREF_raw(item)
            start = stop
            stop = core.heap.size
            monitor_unlock(&core.monitor)
            if item != NULL:
                found = taken(item)
            if tenant < 0 or start >= stop:
                return found
