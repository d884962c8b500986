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

from .admission cimport ADMITTED, CLOSED, FULL, QUOTA_FULL
from .base cimport Chunk
from .core cimport (
    AHEAD,
    DROPPED,
    DUE_AFTER,
    DUE_NOW,
    ENTER,
    HERE,
    NO_ROOM,
    PAST,
    RUN,
    TOO_FAR,
    TRY,
    USER,
    Core,
    core_check,
    core_count_lateness,
)
from .heap cimport heap_adopt, heap_next_segment, heap_push
from .monitor cimport CALL_NOBODY, monitor_due_added, monitor_lock, monitor_signal, monitor_unlock
from .places cimport Places
from .platform cimport dp_aligned_alloc, dp_aligned_free
from .table cimport table_add, table_claim
from .task cimport TaskFields
from .types cimport CHUNK_SIZE, SLOTLESS, Node, Record, Slots

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


cdef class Intake(Places):
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

    cdef object admit(
        self, object name, int kind, int64_t value, object fn, object args, object kwargs,
        object shown, int32_t tenant=-1, int mode=ENTER, object context=...,
    ):
        """Admit one body and return its task; for the modes see ``duepool._values``. None where
        TRY and AHEAD find it full and RUN finds it closed, or what the overload policy gives."""
        cdef Core* core = self.core
        cdef int64_t now = 0, due = 0, given = 0
        cdef int code, call = CALL_NOBODY
        cdef TaskFields task
        cdef Loose loose
        self.alive()
        if dp_plain_function(<PyObject*>fn) != 1:
            check_body(fn, self.coroutines)
        task = self.new_task(name, fn, args, kwargs)
        if mode != ENTER:
            if context is not ...:
                task.context = context
            if mode == RUN:
                task.record.flags = SLOTLESS
        task.record.tenant = tenant
        if core.hired < core.max_workers and mode != HERE and mode != DROPPED:
            self.hire(1)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(mode != RUN)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(core, 1, kind, value, given, tenant, mode, &now, &due)
            if code == ADMITTED:
                self.enter_locked(&task.record, <PyObject*>task, now, due, mode)
                if mode == DROPPED:
                    self.drop_locked(task, now, &loose)
                elif mode != HERE:
                    call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == ADMITTED:
                monitor_signal(&core.monitor, call)
                if mode == DROPPED:
                    self.tidy_dropped(task, &loose)
                return task
            if code == NO_ROOM:
                self.prepare(1)
                continue
            if code == CLOSED and mode == RUN:
                return None
            if code == FULL or code == QUOTA_FULL:
                if mode == TRY or mode == AHEAD:
                    return None
                if mode == ENTER and self.on_full is not None:
                    return self.on_full(
                        self, (name, kind, value, [(fn, args, kwargs)], shown, tenant, False)
                    )
            self.refuse(code, 1, value, now, shown, tenant)

    cdef void drop_locked(self, TaskFields task, int64_t now, Loose* loose) noexcept nogil:
        """End a task that has just entered; see ``ending``. Monitor held."""

    cdef int tidy_dropped(self, TaskFields task, Loose* loose) except -1:
        """What follows from that, outside the monitor."""
        return 0

    cdef void enter_locked(
        self, Record* record, PyObject* task, int64_t now, int64_t due, int mode
    ) noexcept nogil:
        """Give the task its id, its slot and its place in the heap. Monitor held, GIL too.

        HERE: the calling thread has it claimed at once. DROPPED: it is about to end.
        """
        cdef Core* core = self.core
        cdef Slots* slots = self.tail
        cdef int64_t most = core.table.max_queued
        record.due_ns = due
        table_add(&core.table, record, now)
        record.slots = slots
        Py_INCREF_raw(task)
        dp_list_publish(<PyObject*>slots.refs, (record.id - 1) & (CHUNK_SIZE - 1), task)
        slots.issued += 1
        slots.live += 1
        if slots.issued == CHUNK_SIZE:
            self.tail = slots.following
            if self.tail == NULL:
                self.newest = NULL  # this chunk may be gone before the next is prepared
        core.prepared -= 1
        if mode == HERE or mode == DROPPED:
            core.table.max_queued = most  # it never stands in the queue
        if mode == HERE:
            table_claim(&core.table, record, now, -1)
            core_count_lateness(core, 0)
        elif mode != DROPPED:
            if mode == RUN:
                core.runs_queued += 1
            heap_push(&core.heap, record)

    cdef int refuse(
        self, int code, int64_t k, int64_t value, int64_t now, object shown, int32_t tenant
    ) except -1:
        """Raise why ``k`` tasks were not admitted."""
        if code == TOO_FAR:
            raise due_overflow("delay", shown, now)
        if code == PAST:
            raise _refusals.past(value, now)
        if code == FULL:
            raise _refusals.full(self.core.admission.capacity, k)
        if code == QUOTA_FULL:
            raise _refusals.full_quota(
                self.config.face.tenant_names[tenant], self.core.admission.quotas[tenant].limit, k
            )
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

    def submit_many_as(self, name, calls, delay, shown=None, int32_t tenant=-1, int mode=ENTER):
        """Admit each of ``calls`` (a callable or ``(fn, *args)``), all or none, ``delay``
        nanoseconds from now."""
        bodies = read_calls(calls)
        for fn, _ in bodies:
            if dp_plain_function(<PyObject*>fn) != 1:
                check_body(fn, self.coroutines)
        if delay > MAX_NS:
            raise due_overflow("delay", shown, self.now_ns())
        return self.submit_bodies(name, bodies, delay, shown, tenant, mode)

    cdef object submit_bodies(
        self, object name, list bodies, int64_t delay_ns, object shown, int32_t tenant=-1,
        int mode=ENTER,
    ):
        """Admit each (fn, args) of ``bodies``, which were checked, all or none. None where TRY and
        AHEAD find it full, or what the overload policy gives."""
        cdef Core* core = self.core
        cdef list tasks = []
        cdef int64_t now = 0, due = 0, given = 0, k, i
        cdef int code, call = CALL_NOBODY
        cdef int kind = DUE_AFTER if delay_ns else DUE_NOW
        cdef TaskFields task
        self.alive()
        for fn, args in bodies:
            task = self.new_task(name, fn, args, None)
            task.record.tenant = tenant
            tasks.append(task)
        k = len(tasks)
        if core.hired < core.max_workers:
            self.hire(k)
        if name is not None and self.names is None:
            self.keep_names()
        if core.clock_kind == USER:
            given = self.read_clock(True)
        while True:
            monitor_lock(&core.monitor)
            code = core_check(core, k, kind, delay_ns, given, tenant, mode, &now, &due)
            if code == ADMITTED and k:
                for i in range(k):
                    self.enter_locked(
                        &(<TaskFields>dp_list_peek(<PyObject*>tasks, i)).record,
                        dp_list_peek(<PyObject*>tasks, i), now, due, mode,
                    )
                call = monitor_due_added(&core.monitor, due)
            monitor_unlock(&core.monitor)
            if code == ADMITTED:
                monitor_signal(&core.monitor, call)
                return tasks
            if code == NO_ROOM:
                self.prepare(k)
                continue
            if code == FULL or code == QUOTA_FULL:
                if mode == TRY or mode == AHEAD:
                    return None
                if mode == ENTER and self.on_full is not None:
                    calls = [(fn, args, None) for fn, args in bodies]
                    return self.on_full(
                        self, (name, kind, delay_ns, calls, shown, tenant, True)
                    )
            self.refuse(code, k, delay_ns, now, shown, tenant)
