# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, auto_pickle=False, freethreading_compatible=True
"""Admission: who gets in, with everything that can fail before it.

Whatever can raise (bad arguments, a refusal, a thread that cannot start, memory) comes before the
one hold of the monitor in which the task gets its id, its slot and its place in the heap. Chunks
and heap segments are made outside the monitor and linked under it.
"""

from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t

from .admission cimport FULL
from .base cimport Chunk
from .core cimport DUE_AFTER, DUE_NOW, NO_ROOM, PAST, TOO_FAR, USER, Core, core_check
from .heap cimport heap_adopt, heap_next_segment, heap_push
from .lookup cimport Lookup
from .monitor cimport CALL_NOBODY, monitor_due_added, monitor_lock, monitor_signal, monitor_unlock
from .platform cimport dp_aligned_alloc, dp_aligned_free
from .table cimport table_add
from .task cimport TaskFields
from .types cimport CHUNK_SIZE, Node, Record, Slots

import logging

from duepool import _refusals
from duepool._values import check_body, due_overflow, read_calls

cdef extern from "pyslots.h":
    bint dp_no_context()
    void dp_list_publish(PyObject* items, Py_ssize_t index, PyObject* item) nogil
    PyObject* dp_list_peek(PyObject* items, Py_ssize_t index) nogil
    int dp_plain_function(PyObject* fn)
    object dp_new(PyTypeObject* type, object empty)

cdef extern from "Python.h":
    void Py_INCREF_raw "Py_INCREF"(PyObject* o) nogil
    void Py_DECREF_raw "Py_DECREF"(PyObject* o)

cdef object logger = logging.getLogger("duepool")
cdef tuple EMPTY = ()
cdef object MAX_NS = 2**63 - 1


cdef class Intake(Lookup):
    """The submitting half of an engine."""

    cdef TaskFields new_task(self, object name, object fn, object args, object kwargs):
        cdef TaskFields task = <TaskFields>dp_new(<PyTypeObject*>self.task_type, EMPTY)
        task.engine = self
        task.fn = fn
        task.args = args
        task.kwargs = kwargs
        task.name = name
        if self.copy_context and not dp_no_context():
            context = PyContext_CopyCurrent()
            if len(context):
                task.context = context
        return task

    cdef TaskFields admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown,
    ):
        cdef Core* core = self.core
        cdef int64_t now = 0, due = 0, given = 0
        cdef int code, call = CALL_NOBODY
        cdef TaskFields task
        self.alive()
        if dp_plain_function(<PyObject*>fn) != 1:
            check_body(fn)
        task = self.new_task(name, fn, args, kwargs)
        if core.hired < core.max_workers:
            self.hire(1)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(core, 1, kind, value, given, &now, &due)
            if code == 0:
                self.enter_locked(&task.record, <PyObject*>task, now, due)
                call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == 0:
                monitor_signal(&core.monitor, call)
                return task
            if code != NO_ROOM:
                self.refuse(code, 1, value, now, shown)
            self.prepare(1)

    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due
    ) noexcept nogil:
        """Give the task its id, its slot and its place in the heap. Monitor held, GIL too."""
        cdef Slots* slots = self.tail
        record.due_ns = due
        table_add(&self.core.table, record, now)
        record.slots = slots
        Py_INCREF_raw(task)
        dp_list_publish(<PyObject*>slots.refs, (record.id - 1) & (CHUNK_SIZE - 1), task)
        slots.issued += 1
        slots.live += 1
        if slots.issued == CHUNK_SIZE:
            self.tail = slots.following
            if self.tail == NULL:
                self.newest = NULL  # this chunk may be gone before the next is prepared
        self.core.prepared -= 1
        heap_push(&self.core.heap, record)

    cdef int refuse(self, int code, int64_t k, int64_t value, int64_t now, object shown) except -1:
        """Raise why ``k`` tasks were not admitted."""
        if code == TOO_FAR:
            raise due_overflow("delay", shown, now)
        if code == PAST:
            raise _refusals.past(value, now)
        if code == FULL:
            raise _refusals.full(self.core.admission.capacity, k)
        if self.broken is not None:
            raise _refusals.broken(self.broken)
        raise _refusals.closed()

    cdef int prepare(self, int64_t k) except -1:
        """Make room for ``k`` more tasks, outside the monitor. Meanwhile no segment is given up."""
        cdef Core* core = self.core
        cdef bint short_of_slots, short_of_nodes
        cdef int64_t nodes
        cdef int step = 1
        try:
            while True:
                monitor_lock(&core.monitor)
                core.growing += step
                short_of_slots = core.prepared < k
                short_of_nodes = core.heap.room - core.heap.size < k
                nodes = heap_next_segment(&core.heap)
                monitor_unlock(&core.monitor)
                step = 0
                if short_of_slots:
                    self.add_chunk()
                elif short_of_nodes:
                    self.add_segment(nodes)
                else:
                    return 0
        finally:
            monitor_lock(&core.monitor)
            core.growing -= 1
            monitor_unlock(&core.monitor)

    cdef int add_chunk(self) except -1:
        # Between the link and the entry into the dict no Python code runs and the GIL stays here;
        # on free-threaded builds get() of an id of this very moment may miss it.
        cdef Core* core = self.core
        cdef Chunk chunk = Chunk()
        cdef Slots* slots = &chunk.slots
        Py_INCREF(chunk)  # the dict's reference, until it is in there
        monitor_lock(&core.monitor)
        slots.block = self.next_block
        self.next_block += 1
        if self.newest != NULL:
            self.newest.following = slots
        self.newest = slots
        if self.tail == NULL:
            self.tail = slots
        core.prepared += CHUNK_SIZE
        monitor_unlock(&core.monitor)
        self.chunks[slots.block] = chunk
        Py_DECREF_raw(<PyObject*>chunk)
        return 0

    cdef int add_segment(self, int64_t nodes) except -1:
        cdef Core* core = self.core
        cdef Node* segment = <Node*>dp_aligned_alloc(nodes * sizeof(Node))
        if segment == NULL:
            raise MemoryError(f"no memory for {nodes} more queued tasks")
        monitor_lock(&core.monitor)
        if heap_next_segment(&core.heap) == nodes:
            heap_adopt(&core.heap, segment)
            segment = NULL
        monitor_unlock(&core.monitor)
        dp_aligned_free(segment)
        return 0

    def keep_names(self):
        """From now on the history has names too; called before the first named task enters."""
        names = [None] * self.config.history
        monitor_lock(&self.core.monitor)
        if self.names is None:
            self.names = names
        monitor_unlock(&self.core.monitor)

    cdef int hire(self, int64_t k) except -1:
        """Start up to ``k`` more workers, as long as fewer than max_workers exist."""
        cdef Core* core = self.core
        cdef int32_t index, live
        while k > 0:
            k -= 1
            # Known to the crew before it is counted: a signal handler that waits for the workers
            # must find what this thread is in the middle of.
            token = [None]
            self.crew.expect(token)
            monitor_lock(&core.monitor)
            if core.admission.closed or core.hired >= core.max_workers:
                monitor_unlock(&core.monitor)
                self.crew.forget(token)
                return 0
            index = core.next_index
            core.next_index += 1
            core.hired += 1
            core.live += 1
            monitor_unlock(&core.monitor)
            try:
                self.crew.hire(self.handle, index, token)
            except BaseException as error:
                live = self.unhire(token)
                if live == 0 or not isinstance(error, Exception):
                    raise
                if live > 0:
                    logger.warning("no further worker thread could be started: %r", error)
                    return 0
                raise
            finally:
                self.crew.forget(token)
        return 0

    def unhire(self, list token):
        """The worker that was counted for ``token`` will never come, unless its thread has taken
        it; returns how many live, -1 if it works or was given up before."""
        cdef int32_t live
        self.alive()
        try:
            token.pop()
        except IndexError:
            return -1
        monitor_lock(&self.core.monitor)
        self.core.hired -= 1
        self.core.live -= 1
        live = self.core.live
        monitor_unlock(&self.core.monitor)
        self.latch.notify()
        return live

    def submit_as(self, name, int kind, value, fn, args, kwargs, shown=None):
        """Admit ``fn(*args, **kwargs)``; see ``duepool._values`` for ``kind`` and ``value``, of
        which ``shown`` is what the caller gave."""
        if value > MAX_NS:
            raise due_overflow("delay", shown, self.now_ns())
        return self.admit(name, kind, value, fn, args, kwargs, shown)

    def submit_many_as(self, name, calls, delay, shown=None):
        """Admit each of ``calls`` (a callable or ``(fn, *args)``), all or none, ``delay``
        nanoseconds from now."""
        bodies = read_calls(calls)
        for fn, _ in bodies:
            if dp_plain_function(<PyObject*>fn) != 1:
                check_body(fn)
        if delay > MAX_NS:
            raise due_overflow("delay", shown, self.now_ns())
        return self.submit_bodies(name, bodies, delay, shown)

    cdef list submit_bodies(self, object name, list bodies, int64_t delay_ns, object shown):
        """Admit each (fn, args) of ``bodies``, which were checked, all or none."""
        cdef Core* core = self.core
        cdef list tasks = []
        cdef int64_t now = 0, due = 0, given = 0, k, i
        cdef int code, call = CALL_NOBODY
        self.alive()
        for fn, args in bodies:
            tasks.append(self.new_task(name, fn, args, None))
        k = len(tasks)
        if core.hired < core.max_workers:
            self.hire(k)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(
                core, k, DUE_AFTER if delay_ns else DUE_NOW, delay_ns, given, &now, &due
            )
            if code == 0 and k:
                for i in range(k):
                    self.enter_locked(
                        &(<TaskFields>dp_list_peek(<PyObject*>tasks, i)).record,
                        dp_list_peek(<PyObject*>tasks, i), now, due,
                    )
                call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == 0:
                monitor_signal(&core.monitor, call)
                return tasks
            if code != NO_ROOM:
                self.refuse(code, k, delay_ns, now, shown)
            self.prepare(k)
