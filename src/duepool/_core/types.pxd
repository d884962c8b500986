"""The task record, the states, the heap node, and the constants of time.

A record lives inside its task's handle. While the task is unfinished, the engine holds the handle
(in a chunk), so that the heap's borrowed pointer to the record stays valid.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    # The values of duepool._values.TaskState.
    QUEUED = 0
    RUNNING = 1
    CANCEL_REQUESTED = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5
    # A handle that was made and not admitted.
    FRESH = 6

cdef enum:
    # Record.flags. A handshake was shared; every terminal transition is made holding it.
    SHARED = 1
    # A job's run: it holds no place of the capacity, its job does.
    SLOTLESS = 2
    # Somebody is about to make the terminal transition of a run that was handed over.
    CONCLUDING = 4

cdef enum:
    NS_PER_S = 1000000000

# The last instant; as a deadline it means "none".
cdef inline int64_t never() noexcept nogil:
    return <int64_t>((<uint64_t>1 << 63) - 1)

# Tasks of 64 consecutive ids share a chunk.
cdef enum:
    CHUNK_BITS = 6
    CHUNK_SIZE = 64

cdef struct Slots:
    # The C part of a chunk. Guard of every field: the monitor.
    void* refs            # PyObject* of the list that holds the handles; borrowed from the chunk
    int64_t block         # id >> CHUNK_BITS of its tasks
    Slots* following      # the chunk of the next block, NULL when none is prepared yet
    int32_t issued        # how many of its ids were given out
    int32_t live          # how many of those are unfinished

cdef struct Record:
    # Guard of every field: the monitor, once the task is admitted. `state` is also read without
    # it (acquire) and written with release; `due_ns` is read without it as one aligned word.
    int64_t id            # 1, 2, 3 …; 0 before admission
    int64_t due_ns
    int64_t submitted_ns
    int64_t started_ns    # -1 until started
    int64_t finished_ns   # -1 until terminal
    int64_t place         # index in the heap; -1 outside it
    Slots* slots          # where the engine holds the handle while the task is unfinished
    int32_t state
    int32_t worker        # who ran it; -1 the caller of tick(), -2 nobody yet
    int32_t blocked       # workers that are counted as blocked on this task
    int32_t tenant        # whose quota it counts on while queued; -1: nobody's
    uint8_t reason        # index into duepool._values.REASONS
    uint8_t flags

cdef struct Node:
    int64_t due_ns        # a copy of the record's, so that most comparisons touch one cache line
    Record* record
