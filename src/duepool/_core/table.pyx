# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
"""A thin shell over ``table.pxd``, for tests; the engine uses the functions.

The shell owns its records, by id. It is not safe to use from two threads at once.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from .table cimport Ended, Table, table_add, table_claim, table_finish, table_init, table_request
from .types cimport CANCEL_REQUESTED, CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Record


cdef class TaskTable:
    """Ids, states, counts and history of tasks."""

    cdef Table table
    cdef dict records     # id -> address of its Record

    def __cinit__(self, int64_t history):
        cdef Ended* ring = NULL
        if history < 0:
            raise ValueError(f"history must be >= 0, got {history}")
        if history:
            ring = <Ended*>calloc(history, sizeof(Ended))
            if ring == NULL:
                raise MemoryError()
        table_init(&self.table, history, ring)
        self.records = {}

    def __dealloc__(self):
        if self.records is not None:
            for address in self.records.values():
                free(<void*><size_t>address)
        free(self.table.ring)

    def add(self, int64_t due_ns, int64_t now_ns):
        """A new QUEUED task; returns its id."""
        cdef Record* record = <Record*>calloc(1, sizeof(Record))
        if record == NULL:
            raise MemoryError()
        record.due_ns = due_ns
        record.started_ns = -1
        record.finished_ns = -1
        record.worker = -2
        table_add(&self.table, record, now_ns)
        self.records[record.id] = <size_t>record
        return record.id

    def claim(self, int64_t id, int64_t now_ns, int32_t worker):
        """QUEUED → RUNNING."""
        table_claim(&self.table, self.record_in(id, (QUEUED,)), now_ns, worker)

    def request(self, int64_t id):
        """RUNNING → CANCEL_REQUESTED: True; False where it is requested already."""
        cdef Record* record = self.record_in(id, (RUNNING, CANCEL_REQUESTED))
        if record.state == CANCEL_REQUESTED:
            return False
        table_request(&self.table, record)
        return True

    def finish(self, int64_t id, int state, int64_t now_ns):
        """RUNNING → SUCCEEDED or FAILED, CANCEL_REQUESTED → CANCELLED."""
        if state == CANCELLED:
            self.end(self.record_in(id, (CANCEL_REQUESTED,)), state, now_ns)
        elif state == SUCCEEDED or state == FAILED:
            self.end(self.record_in(id, (RUNNING,)), state, now_ns)
        else:
            raise ValueError(f"state {state} is not terminal")

    def cancel_queued(self, int64_t id, int64_t now_ns):
        """QUEUED → CANCELLED."""
        self.end(self.record_in(id, (QUEUED,)), CANCELLED, now_ns)

    cdef int end(self, Record* record, int state, int64_t now_ns) except -1:
        table_finish(&self.table, record, state, now_ns)
        del self.records[record.id]
        free(record)
        return 0

    cdef Record* record_in(self, int64_t id, tuple states) except NULL:
        cdef Record* record
        address = self.records.get(id)
        if address is None:
            raise ValueError(f"task {id} is not unfinished")
        record = <Record*><size_t>address
        if record.state not in states:
            raise ValueError(f"task {id} is in state {record.state}: no such transition")
        return record

    def state(self, int64_t id):
        """The state of a task, unfinished or in the history; else ``KeyError``."""
        return self.view(id)[1]

    def view(self, int64_t id):
        """(id, state, worker, due, submitted, started, finished); ``KeyError`` if unknown."""
        cdef int64_t k
        cdef Record* record
        address = self.records.get(id)
        if address is not None:
            record = <Record*><size_t>address
            return (
                record.id, record.state, None if record.worker == -2 else record.worker,
                record.due_ns, record.submitted_ns,
                None if record.started_ns < 0 else record.started_ns, None,
            )
        for k in range(min(self.table.ended, self.table.history)):
            if self.table.ring[k].id == id:
                return entry_view(self.table.ring + k)
        raise KeyError(id)

    def counts(self):
        """(queued, running, cancel_requested, succeeded, failed, cancelled, admitted,
        max_queued)."""
        return (
            *[self.table.counts[k] for k in range(6)],
            self.table.next_id - 1,
            self.table.max_queued,
        )

    def unfinished(self):
        """The ids of the unfinished tasks, sorted."""
        return sorted(self.records)

    def finished_since(self, int64_t mark):
        """Views of the tasks that ended after the first ``mark``, as far as the history reaches."""
        cdef int64_t first = max(mark, self.table.ended - self.table.history)
        return [
            entry_view(self.table.ring + k % self.table.history)
            for k in range(first, self.table.ended)
        ]


cdef tuple entry_view(Ended* entry):
    return (
        entry.id, entry.state, None if entry.worker == -2 else entry.worker, entry.due_ns,
        entry.submitted_ns, None if entry.started_ns < 0 else entry.started_ns, entry.finished_ns,
    )
