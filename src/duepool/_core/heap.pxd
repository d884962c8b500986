"""The indexed 4-ary deadline heap.

Invariants, with the monitor held:
- order is (due_ns, id): no node sorts before its parent, and ids are unique, so the order is total;
- ``node(i).record.place == i`` for every node, and ``place == -1`` for a record outside the heap;
- ``size <= room``.

Cost: push, pop, remove and move are O(log n) comparisons of base 4; peek is O(1). No function
allocates, frees or copies more than a node: memory comes in segments, each as large as all before
it, that the caller allocates and frees outside the monitor. Positions are shifted so that the four
children of a node lie in one segment and, with segments aligned to 64 bytes, in one cache line.

None of this takes a lock: every function must be called with the monitor held.
"""

from libc.stdint cimport int64_t, uint64_t

from .platform cimport dp_top_bit
from .types cimport SLOTLESS, Node, Record

cdef enum:
    FIRST_BITS = 8                    # the first segment has 2**FIRST_BITS places
    SHIFT = (1 << FIRST_BITS) + 3     # position of index 0
    MAX_SEGMENTS = 40

cdef struct Heap:
    int64_t size
    int64_t room                      # how many nodes fit into the segments
    int segment_count
    Node* segments[MAX_SEGMENTS]


cdef inline void heap_init(Heap* heap) noexcept nogil:
    heap.size = 0
    heap.room = 0
    heap.segment_count = 0


cdef inline int64_t heap_next_segment(Heap* heap) noexcept nogil:
    """How many nodes the next segment must have."""
    return (<int64_t>1) << (FIRST_BITS + heap.segment_count)


cdef inline void heap_adopt(Heap* heap, Node* segment) noexcept nogil:
    """Take a segment of ``heap_next_segment`` nodes. Call with the monitor held."""
    heap.segments[heap.segment_count] = segment
    heap.segment_count += 1
    heap.room = ((<int64_t>1) << (FIRST_BITS + heap.segment_count)) - SHIFT


cdef inline Node* heap_disown(Heap* heap) noexcept nogil:
    """The last segment if the heap has shrunk far below it, for the caller to free; else NULL.

    Call with the monitor held. A segment goes when an eighth of the room would do, so that a heap
    that swings around a boundary does not allocate again and again.
    """
    if heap.segment_count < 2 or heap.size > (heap.room >> 3):
        return NULL
    heap.segment_count -= 1
    heap.room = ((<int64_t>1) << (FIRST_BITS + heap.segment_count)) - SHIFT
    return heap.segments[heap.segment_count]


cdef inline Node* heap_at(Heap* heap, int64_t index) noexcept nogil:
    cdef uint64_t position = <uint64_t>index + SHIFT
    cdef int bit = dp_top_bit(position)
    return heap.segments[bit - FIRST_BITS] + (position ^ ((<uint64_t>1) << bit))


cdef inline bint node_before(const Node* a, const Node* b) noexcept nogil:
    return a.due_ns < b.due_ns or (a.due_ns == b.due_ns and a.record.id < b.record.id)


cdef inline void heap_put(Heap* heap, int64_t index, Node node) noexcept nogil:
    heap_at(heap, index)[0] = node
    node.record.place = index


cdef inline int64_t heap_up(Heap* heap, int64_t index, Node node) noexcept nogil:
    """Where ``node`` goes when it may sort before the parents of the hole at ``index``."""
    cdef int64_t parent
    cdef Node* above
    while index > 0:
        parent = (index - 1) >> 2
        above = heap_at(heap, parent)
        if not node_before(&node, above):
            break
        heap_put(heap, index, above[0])
        index = parent
    return index


cdef inline int64_t heap_down(Heap* heap, int64_t index, Node node) noexcept nogil:
    """Where ``node`` goes when it may sort after the children of the hole at ``index``."""
    cdef int64_t child, best, count, k
    cdef Node* group
    while True:
        child = 4 * index + 1
        if child >= heap.size:
            return index
        group = heap_at(heap, child)
        count = heap.size - child
        if count > 4:
            count = 4
        best = 0
        for k in range(1, count):
            if node_before(group + k, group + best):
                best = k
        if not node_before(group + best, &node):
            return index
        heap_put(heap, index, group[best])
        index = child + best


cdef inline void heap_push(Heap* heap, Record* record) noexcept nogil:
    """Insert ``record`` by its due time and id. Call with the monitor held and room left."""
    cdef Node node
    node.due_ns = record.due_ns
    node.record = record
    heap.size += 1
    heap_put(heap, heap_up(heap, heap.size - 1, node), node)


cdef inline Record* heap_peek(Heap* heap) noexcept nogil:
    """The first record; NULL when empty. Call with the monitor held."""
    return NULL if heap.size == 0 else heap_at(heap, 0).record


cdef inline void heap_settle(Heap* heap, int64_t index, Node node) noexcept nogil:
    """Place ``node`` from the hole at ``index``, up or down."""
    cdef int64_t place = heap_up(heap, index, node)
    if place == index:
        place = heap_down(heap, index, node)
    heap_put(heap, place, node)


cdef inline void heap_remove(Heap* heap, Record* record) noexcept nogil:
    """Take ``record`` out, wherever it is. Call with the monitor held."""
    cdef int64_t index = record.place
    cdef Node last
    heap.size -= 1
    last = heap_at(heap, heap.size)[0]
    record.place = -1
    if index != heap.size:
        heap_settle(heap, index, last)


cdef inline void heap_move(Heap* heap, Record* record, int64_t due_ns) noexcept nogil:
    """Give ``record`` a new due time in place. Call with the monitor held."""
    cdef Node node
    record.due_ns = due_ns
    node.due_ns = due_ns
    node.record = record
    heap_settle(heap, record.place, node)


cdef inline Record* heap_first_held(Heap* heap) noexcept nogil:
    """The first record that holds a place of the capacity; NULL if none does.

    It looks below runs of jobs only, so that it costs O(1 + runs that sort before the answer). Call
    with the monitor held.
    """
    cdef int64_t index = 0
    cdef Node* node
    cdef Node best
    best.record = NULL
    if heap.size == 0:
        return NULL
    while True:
        node = heap_at(heap, index)
        if best.record == NULL or node_before(node, &best):
            if not node.record.flags & SLOTLESS:
                best = node[0]
            elif 4 * index + 1 < heap.size:
                index = 4 * index + 1
                continue
        # Up past last children, then to the next sibling.
        while index > 0 and (index & 3 == 0 or index + 1 >= heap.size):
            index = (index - 1) >> 2
        if index == 0:
            return best.record
        index += 1
