# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Finding tasks by id, and what an engine tells of itself.

Every snapshot is taken in holds of the monitor that are constant in length: 64 records at a time.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from .base cimport Chunk, EngineBase, taken
from .core cimport LATENESS_BUCKETS, Core
from .monitor cimport monitor_lock, monitor_unlock
from .platform cimport dp_load32, dp_load64
from .table cimport Ended
from .task cimport TaskFields, terminal
from .types cimport (
    CANCELLED,
    CANCEL_REQUESTED,
    CHUNK_BITS,
    CHUNK_SIZE,
    FAILED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    Record,
)

from duepool import _refusals
from duepool._values import Counts, TaskState, TaskView

cdef extern from "pyslots.h":
    PyObject* dp_list_peek(PyObject* items, Py_ssize_t index) nogil

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

cdef tuple STATES = tuple(TaskState)

# How many records are copied in one hold of the monitor.
cdef int64_t SLICE = 64


cdef class Lookup(EngineBase):
    """Tasks, views and counters of one engine."""

    cdef TaskFields own(self, object task):
        """``task`` if it is a handle of this engine."""
        if not isinstance(task, TaskFields):
            if hasattr(type(task), "cancel_reason"):  # a task of the reference engine
                raise _refusals.another_scheduler(task)
            return None
        if (<TaskFields>task).engine is not self:
            raise _refusals.another_scheduler(task)
        return <TaskFields>task

    cdef TaskFields mine(self, object task):
        """``task``, which must be a handle of this engine."""
        cdef TaskFields found = self.own(task)
        if found is None:
            raise TypeError(f"task must be a Task, not {type(task).__name__} {task!r}")
        return found

    cdef int64_t issued(self, object task_id) except -1:
        """``task_id`` as a number that was issued; ``UnknownTask`` if it never was."""
        cdef int64_t last
        self.alive()
        number = _refusals.task_id(task_id)
        monitor_lock(&self.core.monitor)
        last = self.core.table.next_id - 1
        monitor_unlock(&self.core.monitor)
        if number < 1 or number > last:
            raise _refusals.never_issued(number)
        return number

    cdef TaskFields find(self, object task_id):
        """The unfinished task with this id, or None."""
        cdef int64_t number
        cdef PyObject* item
        cdef Chunk chunk
        self.alive()
        number = self.issued(task_id)
        found = self.chunks.get((number - 1) >> CHUNK_BITS)
        if found is None:
            return None
        chunk = found
        monitor_lock(&self.core.monitor)
        item = dp_list_peek(<PyObject*>chunk.slots.refs, (number - 1) & (CHUNK_SIZE - 1))
        Py_INCREF_raw(item)
        monitor_unlock(&self.core.monitor)
        task = <object>item
        Py_DECREF_raw(item)
        return task

    def get(self, task_id):
        """The unfinished task with this id; ``UnknownTask`` if there is none."""
        task = self.find(task_id)
        if task is None:
            raise _refusals.ended(self.issued(task_id))
        return task

    def view(self, task_id):
        """The record of a task, unfinished or in the history; else ``UnknownTask``."""
        task = self.find(task_id)
        if task is not None:
            return self.view_record(task)
        task_id = self.issued(task_id)
        view = self.find_ended(task_id)
        if view is None:
            raise _refusals.evicted(task_id, self.config.history)
        return view

    def view_of(self, task):
        """The record behind a handle of this engine, whatever its age."""
        return self.view_record(self.mine(task))

    cdef object view_record(self, TaskFields task):
        cdef Record record
        self.alive()
        monitor_lock(&self.core.monitor)
        record = task.record
        monitor_unlock(&self.core.monitor)
        return TaskView(
            record.id,
            task.name,
            STATES[record.state],
            None if record.worker == -2 else record.worker,
            record.due_ns,
            record.submitted_ns,
            None if record.started_ns < 0 else record.started_ns,
            None if record.finished_ns < 0 else record.finished_ns,
        )

    cdef object ended_view(self, Ended* entry, object name):
        return TaskView(
            entry.id,
            name,
            STATES[entry.state],
            None if entry.worker == -2 else entry.worker,
            entry.due_ns,
            entry.submitted_ns,
            None if entry.started_ns < 0 else entry.started_ns,
            entry.finished_ns,
        )

    cdef object find_ended(self, int64_t task_id):
        """The record of an ended task from the history, or None. Looks at it in slices, so that the
        monitor is held for a constant time; a record that is there at the start and not overwritten
        meanwhile is found, since records never move."""
        cdef Core* core = self.core
        cdef Ended entry
        cdef int64_t start = 0, i, stop
        cdef PyObject* item = NULL
        while start < core.table.history:
            monitor_lock(&core.monitor)
            stop = min(start + SLICE, core.table.history, core.table.ended)
            for i in range(start, stop):
                if core.table.ring[i].id == task_id:
                    entry = core.table.ring[i]
                    if self.names is not None:
                        item = dp_list_peek(<PyObject*>self.names, i)
                        Py_INCREF_raw(item)
                    break
            else:
                i = -1
            monitor_unlock(&core.monitor)
            if i >= 0:
                return self.ended_view(&entry, taken(item))
            if stop == start:
                break
            start = stop
        return None

    def finished_since(self, int64_t mark):
        """Views of the tasks that ended after the first ``mark``, in that order, as far as the
        history reaches."""
        cdef Core* core = self.core
        cdef Ended entries[64]
        cdef PyObject* names[64]
        cdef int64_t count, i, place
        cdef list views = []
        self.alive()
        if core.table.history == 0:
            return views
        while True:
            count = 0
            monitor_lock(&core.monitor)
            mark = max(mark, core.table.ended - core.table.history)
            while count < SLICE and mark < core.table.ended:
                place = mark % core.table.history
                entries[count] = core.table.ring[place]
                names[count] = NULL
                if self.names is not None:
                    names[count] = dp_list_peek(<PyObject*>self.names, place)
                    Py_INCREF_raw(names[count])
                mark += 1
                count += 1
            monitor_unlock(&core.monitor)
            if count == 0:
                return views
            for i in range(count):
                views.append(self.ended_view(&entries[i], taken(names[i])))

    def tasks(self, state=None):
        """The unfinished tasks (in ``state``, if given), by id."""
        cdef list found = []
        cdef PyObject* items[64]
        cdef Chunk chunk
        cdef int i
        self.alive()
        if state is not None and not isinstance(state, TaskState):
            raise _refusals.bad_state(state)
        wanted = -1 if state is None else int(state)
        for block in sorted(self.chunks):
            chunk = self.chunks.get(block)
            if chunk is None:
                continue
            monitor_lock(&self.core.monitor)
            for i in range(CHUNK_SIZE):
                items[i] = dp_list_peek(<PyObject*>chunk.slots.refs, i)
                Py_INCREF_raw(items[i])
            monitor_unlock(&self.core.monitor)
            for i in range(CHUNK_SIZE):
                task = taken(items[i])
                if task is not None and (
                    state is None or dp_load32(&(<TaskFields>task).record.state) == wanted
                ):
                    if not terminal(dp_load32(&(<TaskFields>task).record.state)):
                        found.append(task)
        return found

    def counts(self):
        """Every counter, read at one instant."""
        cdef Core* core = self.core
        cdef int64_t lateness[LATENESS_BUCKETS]
        cdef int64_t numbers[6]
        cdef int64_t admitted, rejected, max_queued, wakeups, clock_errors, carries, largest
        cdef int64_t telling
        cdef uint64_t total
        cdef int32_t live, inside
        cdef bint closed
        cdef int i, used = 0
        self.alive()
        monitor_lock(&core.monitor)
        telling = dp_load64(&core.telling)
        for i in range(6):
            numbers[i] = core.table.counts[i]
        admitted = core.table.next_id - 1
        rejected = core.admission.rejected
        max_queued = core.table.max_queued
        wakeups = core.monitor.wakeups
        clock_errors = core.clock_errors
        live = core.live
        inside = core.inside + core.blocked
        closed = core.admission.closed
        total = core.lateness_total_ns
        carries = core.lateness_carries
        largest = core.lateness_max_ns
        for i in range(LATENESS_BUCKETS):
            lateness[i] = core.lateness[i]
        monitor_unlock(&core.monitor)
        for i in range(LATENESS_BUCKETS):
            if lateness[i]:
                used = i + 1
        return Counts(
            numbers[QUEUED],
            numbers[RUNNING],
            numbers[CANCEL_REQUESTED],
            numbers[SUCCEEDED],
            numbers[FAILED],
            numbers[CANCELLED],
            admitted,
            rejected,
            max_queued,
            wakeups,
            clock_errors,
            live,
            inside,
            bool(closed),
            (int(carries) << 64) + total,
            largest,
            tuple([lateness[i] for i in range(used)]),
            telling,
        )
