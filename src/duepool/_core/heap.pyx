# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
"""A thin shell over ``heap.pxd``, for tests and for measuring; the engine uses the functions.

The shell owns its records, by id. It is not safe to use from two threads at once.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from .heap cimport (
    Heap,
    heap_adopt,
    heap_at,
    heap_disown,
    heap_init,
    heap_move,
    heap_next_segment,
    heap_peek,
    heap_push,
    heap_remove,
    node_before,
)
from .platform cimport dp_aligned_alloc, dp_aligned_free
from .types cimport Node, Record


cdef class DeadlineHeap:
    """A 4-ary heap of (due_ns, id) in which every entry knows its place."""

    cdef Heap heap
    cdef dict records     # id -> address of its Record

    def __cinit__(self):
        heap_init(&self.heap)
        self.records = {}

    def __dealloc__(self):
        cdef int k
        if self.records is not None:
            for address in self.records.values():
                free(<void*><size_t>address)
        for k in range(self.heap.segment_count):
            dp_aligned_free(self.heap.segments[k])

    def push(self, int64_t due_ns, int64_t id):
        """Insert an entry. ``ValueError`` if ``id`` is in the heap already."""
        cdef Node* segment
        cdef Record* record
        if id in self.records:
            raise ValueError(f"id {id} is in the heap already")
        if self.heap.size == self.heap.room:
            segment = <Node*>dp_aligned_alloc(heap_next_segment(&self.heap) * sizeof(Node))
            if segment == NULL:
                raise MemoryError()
            heap_adopt(&self.heap, segment)
        record = <Record*>calloc(1, sizeof(Record))
        if record == NULL:
            raise MemoryError()
        record.due_ns = due_ns
        record.id = id
        self.records[id] = <size_t>record
        heap_push(&self.heap, record)

    def peek(self):
        """The first (due_ns, id), or None."""
        cdef Record* record = heap_peek(&self.heap)
        return None if record == NULL else (record.due_ns, record.id)

    def pop(self):
        """Take the first (due_ns, id) out. ``IndexError`` when empty."""
        cdef Record* record = heap_peek(&self.heap)
        if record == NULL:
            raise IndexError("pop from an empty heap")
        entry = record.due_ns, record.id
        self.drop(record)
        return entry

    def remove(self, int64_t id):
        """Take an entry out, wherever it is; False if it is not in the heap."""
        address = self.records.get(id)
        if address is None:
            return False
        self.drop(<Record*><size_t>address)
        return True

    def reschedule(self, int64_t id, int64_t due_ns):
        """Give an entry a new due time in place; False if it is not in the heap."""
        address = self.records.get(id)
        if address is None:
            return False
        heap_move(&self.heap, <Record*><size_t>address, due_ns)
        return True

    cdef int drop(self, Record* record) except -1:
        heap_remove(&self.heap, record)
        del self.records[record.id]
        free(record)
        dp_aligned_free(heap_disown(&self.heap))
        return 0

    def __len__(self):
        return self.heap.size

    def __contains__(self, id):
        return id in self.records

    def ids(self):
        """The ids in the heap, in no particular order."""
        return list(self.records)

    def check(self):
        """Assert every invariant of ``heap.pxd``."""
        cdef int64_t i
        cdef Node* node
        assert self.heap.size == len(self.records) <= self.heap.room or not self.heap.room
        for i in range(self.heap.size):
            node = heap_at(&self.heap, i)
            assert node.record.place == i, f"entry {node.record.id} does not know its place"
            assert node.due_ns == node.record.due_ns
            assert i == 0 or node_before(heap_at(&self.heap, (i - 1) >> 2), node), (
                f"entry {node.record.id} sorts before its parent"
            )
