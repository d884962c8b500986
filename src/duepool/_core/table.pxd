"""The task-state table: ids, transitions, counts, history.

Invariants, with the monitor held:
- ``next_id - 1`` tasks were admitted, and that is the sum of the six counts;
- a record makes only the transitions QUEUED → RUNNING | FAILED | CANCELLED, RUNNING →
  CANCEL_REQUESTED | SUCCEEDED | FAILED and CANCEL_REQUESTED → CANCELLED;
- the ring holds the last ``min(ended, history)`` ended tasks: the k-th that ended, from 0, is at
  ``k % history``.

Cost: every step is O(1). The new state is stored with release, after everything that a reader who
sees it may read. Nothing here takes a lock: call with the monitor held.
"""

from libc.stdint cimport int32_t, int64_t

from .platform cimport dp_store32
from .types cimport CANCEL_REQUESTED, QUEUED, RUNNING, Record

cdef struct Ended:
    # What the history keeps of a task. Times in nanoseconds; started_ns is -1 if it never started.
    int64_t id
    int64_t due_ns
    int64_t submitted_ns
    int64_t started_ns
    int64_t finished_ns
    int32_t state
    int32_t worker

cdef struct Table:
    int64_t next_id
    int64_t counts[6]      # by state
    int64_t max_queued
    int64_t ended          # how many tasks are terminal
    int64_t history        # the length of the ring; 0: none
    Ended* ring            # NULL when history is 0


cdef inline void table_init(Table* table, int64_t history, Ended* ring) noexcept nogil:
    cdef int state
    table.next_id = 1
    for state in range(6):
        table.counts[state] = 0
    table.max_queued = 0
    table.ended = 0
    table.history = history
    table.ring = ring


cdef inline void table_add(Table* table, Record* record, int64_t now_ns) noexcept nogil:
    """Give ``record`` its id and make it QUEUED. Call with the monitor held."""
    record.id = table.next_id
    table.next_id += 1
    record.submitted_ns = now_ns
    table.counts[QUEUED] += 1
    if table.counts[QUEUED] > table.max_queued:
        table.max_queued = table.counts[QUEUED]
    dp_store32(&record.state, QUEUED)


cdef inline void table_move(Table* table, Record* record, int32_t state) noexcept nogil:
    table.counts[record.state] -= 1
    table.counts[state] += 1
    dp_store32(&record.state, state)


cdef inline void table_claim(
    Table* table, Record* record, int64_t now_ns, int32_t worker
) noexcept nogil:
    """QUEUED → RUNNING. Call with the monitor held."""
    record.started_ns = now_ns
    record.worker = worker
    table_move(table, record, RUNNING)


cdef inline void table_request(Table* table, Record* record) noexcept nogil:
    """RUNNING → CANCEL_REQUESTED. Call with the monitor held."""
    table_move(table, record, CANCEL_REQUESTED)


cdef inline int64_t table_finish(
    Table* table, Record* record, int32_t state, int64_t now_ns
) noexcept nogil:
    """Any unfinished state → the terminal ``state``; returns the ring's place that the record took,
    -1 without a history. Call with the monitor held."""
    cdef int64_t place = -1
    cdef Ended* entry
    record.finished_ns = now_ns
    if table.history:
        place = table.ended % table.history
        entry = table.ring + place
        entry.id = record.id
        entry.due_ns = record.due_ns
        entry.submitted_ns = record.submitted_ns
        entry.started_ns = record.started_ns
        entry.finished_ns = now_ns
        entry.state = state
        entry.worker = record.worker
    table.ended += 1
    table_move(table, record, state)
    return place
