"""The C core of one engine, and the composite steps over heap, table, admission and monitor.

The core is reference-counted in C: the engine and each handle hold a count, so that a parked worker
never waits on memory that was freed. Every step says whether it takes the monitor itself or must be
called with it. A step never allocates, frees, or touches the interpreter.

Guard of every field below: the monitor, unless its comment says otherwise.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from .admission cimport (
    ADMITTED,
    CLOSED,
    AdmissionState,
    admission_release,
    admission_take,
    admission_verdict,
)
from .clock cimport CellMemory
from .heap cimport Heap, heap_at, heap_disown, heap_peek, heap_remove
from .monitor cimport (
    CALL_NOBODY,
    Monitor,
    monitor_hand_over,
    monitor_lock,
    monitor_recall,
    monitor_unlock,
    monitor_wait_epoch,
    monitor_wait_follower,
    monitor_wait_leader,
)
from .platform cimport dp_load64, dp_now_ns, dp_top_bit
from .table cimport Table, table_claim, table_finish
from .types cimport CANCEL_REQUESTED, QUEUED, RUNNING, SLOTLESS, Node, Record, never

cdef enum ClockKind:
    MONOTONIC = 0
    MANUAL = 1
    USER = 2

cdef enum:
    LATENESS_BUCKETS = 61 * 16

cdef enum Refusal:
    # Answers of core_check: the first four are those of the admission counter.
    NO_ROOM = 4            # chunk or heap must grow first
    PAST = 5
    TOO_FAR = 6

cdef enum Mode:
    # How a submission enters; the values of duepool._values.
    ENTER = 0
    TRY = 1
    AHEAD = 2
    RUN = 3
    HERE = 4
    DROPPED = 5
    REJECT = 6

cdef enum Due:
    # The values of duepool._values.
    DUE_NOW = 0
    DUE_AFTER = 1
    DUE_AT = 2

cdef enum Outcome:
    # Answers of core_claim and core_park.
    CLAIMED = 0
    NOTHING = 1            # nothing may be claimed now
    LEAVE = 2              # nothing will ever be claimed again

cdef struct Core:
    Monitor monitor
    Heap heap
    Table table
    AdmissionState admission
    int64_t references         # atomic
    int64_t generation         # constant: the fork generation it was made in
    CellMemory* cell           # constant: the manual clock's time, read atomically; else NULL
    int clock_kind             # constant
    int32_t max_workers        # constant
    bint past_due_reject       # constant
    bint has_policy            # constant: somebody is asked before a full queue refuses
    bint hands_over            # constant: bodies run in an injected executor
    int64_t last_now_ns        # the last reading of the clock
    int64_t claim_limit_ns     # nothing due later is claimed any more
    int64_t prepared           # ids whose slots are ready
    int64_t clock_errors
    uint64_t lateness_total_ns  # the sum, modulo 2**64 …
    int64_t lateness_carries   # … and how often it went round
    int64_t lateness_max_ns
    int64_t lateness[LATENESS_BUCKETS]
    int32_t hired              # workers that were ever hired
    int32_t live               # hired and not left yet
    int32_t blocked            # workers that wait without time-out for a task of this engine
    int32_t inside             # workers that wait inside shutdown()
    int32_t inside_forever     # … without a time-out
    int32_t next_index         # the index of the next worker to be hired
    int32_t growing            # submissions that are making room
    int64_t runs_queued        # QUEUED runs of jobs
    int64_t telling            # atomic; ended tasks that are still told of; manual clocks only
    bint dead                  # the engine object is gone
    bint kept                  # the engine drains without its face; the handle keeps it alive
    bint ticking               # some thread is inside tick()

cdef struct Worker:
    # State of one worker thread; nobody else reads it.
    int32_t index
    bint leads                 # this worker is the leader, on its way to the monitor
    uint64_t seen_wake         # wake_count before its last reading of a user's clock
    int64_t seen_now_ns        # that reading
    int64_t backoff_ns         # how long to wait for a user's clock that does not move


cdef inline int64_t core_now(Core* core, int64_t given_ns) noexcept nogil:
    """The clock, never before an earlier reading. ``given_ns`` is a reading of a user's clock that
    was taken outside the monitor. Call with the monitor held."""
    cdef int64_t now
    if core.clock_kind == MONOTONIC:
        now = dp_now_ns()
    elif core.clock_kind == MANUAL:
        now = dp_load64(&core.cell.now_ns)
    else:
        now = given_ns
    if now > core.last_now_ns:
        core.last_now_ns = now
    return core.last_now_ns


cdef inline int64_t core_claimable_ns(Core* core) noexcept nogil:
    """The due time of the head if it may ever be claimed, else never. Monitor held.

    It reads the heap's own copy: while the collector takes a dead engine apart, the records may be
    gone before the parked workers are told.
    """
    cdef int64_t due
    if core.heap.size == 0:
        return never()
    due = heap_at(&core.heap, 0).due_ns
    return never() if due > core.claim_limit_ns else due


cdef inline bint core_unfinished(Core* core) noexcept nogil:
    """True while a task is queued or running. Monitor held."""
    cdef Table* table = &core.table
    return (
        table.counts[QUEUED] + table.counts[RUNNING] + table.counts[CANCEL_REQUESTED] > 0
    )


cdef inline int core_check(
    Core* core, int64_t k, int kind, int64_t value, int64_t given_ns, int32_t tenant, int mode,
    int64_t* now, int64_t* due
) noexcept nogil:
    """May ``k`` tasks enter, and due when? Takes their places if so. Monitor held.

    0, or why not; nothing is changed then but the count of refusals.
    """
    cdef int answer
    if core.admission.closed:
        if mode != RUN:
            core.admission.rejected += k
        return CLOSED
    now[0] = core_now(core, given_ns)
    if kind == DUE_NOW:
        due[0] = now[0]
    elif kind == DUE_AFTER:
        if value > never() - now[0]:
            return TOO_FAR
        due[0] = now[0] + value
    elif value < now[0]:
        if core.past_due_reject and mode != RUN:
            return PAST
        due[0] = now[0]
    else:
        due[0] = value
    if mode <= AHEAD or mode == REJECT:
        answer = admission_verdict(&core.admission, k, tenant, mode == AHEAD)
        if answer != ADMITTED:
            if mode == REJECT or (mode == ENTER and not core.has_policy):
                core.admission.rejected += k
            return answer
        if core.prepared < k or core.heap.room - core.heap.size < k:
            return NO_ROOM
        admission_take(&core.admission, k, tenant)
        return ADMITTED
    if core.prepared < k or core.heap.room - core.heap.size < k:
        return NO_ROOM
    return ADMITTED


cdef inline void core_count_lateness(Core* core, int64_t late_ns) noexcept nogil:
    cdef int bit
    cdef int64_t index = late_ns
    if late_ns >= 16:
        bit = dp_top_bit(<uint64_t>late_ns)
        index = ((bit - 3) << 4) + ((late_ns >> (bit - 4)) & 15)
    core.lateness[index] += 1
    core.lateness_total_ns += <uint64_t>late_ns
    if core.lateness_total_ns < <uint64_t>late_ns:
        core.lateness_carries += 1
    if late_ns > core.lateness_max_ns:
        core.lateness_max_ns = late_ns


cdef inline int core_emptied(Core* core) noexcept nogil:
    """A task left the heap: idle workers of a closed engine leave with the last. Monitor held."""
    if core.admission.closed and core.heap.size == 0:
        return monitor_recall(&core.monitor)
    return CALL_NOBODY


cdef inline void core_unqueue(Core* core, Record* record) noexcept nogil:
    """Take a QUEUED record out of the heap and give its place back. Monitor held."""
    heap_remove(&core.heap, record)
    if record.flags & SLOTLESS:
        core.runs_queued -= 1
    else:
        admission_release(&core.admission, 1, record.tenant)


cdef inline int core_claim(
    Core* core, Worker* worker, int64_t now, int64_t until_ns, int64_t last_id,
    Record** record, int* call,
) noexcept nogil:
    """QUEUED → RUNNING for the head, if it is due at ``now`` and (due, id) is not after
    (``until_ns``, ``last_id``). Gives up the worker's leadership. Monitor held."""
    cdef Record* head
    call[0] = CALL_NOBODY
    if worker.leads:
        worker.leads = False
        core.monitor.leader = False
    head = heap_peek(&core.heap)
    if head == NULL:
        return LEAVE if core.admission.closed else NOTHING
    if head.due_ns > until_ns or (head.due_ns == until_ns and head.id > last_id):
        return NOTHING
    if head.due_ns > core.claim_limit_ns:
        return NOTHING
    core_unqueue(core, head)
    table_claim(&core.table, head, now, worker.index)
    core_count_lateness(core, now - head.due_ns)
    if core.heap.size:
        call[0] = monitor_hand_over(&core.monitor, True)
    else:
        call[0] = core_emptied(core)
    record[0] = head
    return CLAIMED


cdef inline void core_end(Core* core, Record* record, int32_t state, int64_t now,
                          int64_t* ring_place, int64_t* dead_block) noexcept nogil:
    """The terminal transition, and all that is counted on the task. Monitor held.

    ``dead_block``: the block whose chunk has no unfinished task any more, else -1.
    """
    ring_place[0] = table_finish(&core.table, record, state, now)
    core.blocked -= record.blocked
    record.blocked = 0
    record.slots.live -= 1
    dead_block[0] = -1
    if record.slots.live == 0 and record.slots.issued == 64:
        dead_block[0] = record.slots.block


cdef inline int core_park(Core* core, Worker* worker) noexcept nogil:
    """Wait until there may be something to claim (NOTHING) or never will be (LEAVE).

    Takes the monitor. Called detached from the interpreter, and touches nothing but the core.
    """
    cdef Monitor* monitor = &core.monitor
    cdef int answer
    monitor_lock(monitor)
    while True:
        if core.dead or (core.admission.closed and core.heap.size == 0):
            answer = LEAVE
            break
        if core_ready(core, worker):
            if not monitor.leader:
                core_lead(core, worker)
            answer = NOTHING
            break
        if monitor.leader:
            monitor_wait_follower(monitor)
            continue
        monitor.leader = True
        monitor.called = False
        monitor.token = False
        monitor.armed_ns = core_claimable_ns(core)
        answer = core_wait_as_leader(core, worker)
        break
    monitor_unlock(monitor)
    return answer


cdef inline bint core_ready(Core* core, Worker* worker) noexcept nogil:
    """Is there something to claim, or a user's clock to read again? Monitor held."""
    cdef int64_t due
    if core.clock_kind == USER and core.monitor.wake_count != worker.seen_wake:
        return True
    if core.heap.size == 0:
        return False
    due = heap_at(&core.heap, 0).due_ns
    return due <= core.claim_limit_ns and due <= core_now(core, 0)


cdef inline void core_lead(Core* core, Worker* worker) noexcept nogil:
    """This worker is the leader and on its way: nobody needs to be called. Monitor held."""
    core.monitor.leader = True
    core.monitor.called = True
    core.monitor.token = False
    core.monitor.armed_ns = -1
    worker.leads = True


cdef inline int core_wait_as_leader(Core* core, Worker* worker) noexcept nogil:
    cdef Monitor* monitor = &core.monitor
    cdef int64_t deadline
    while True:
        deadline = core_wait_deadline(core, worker)
        monitor_wait_leader(monitor, deadline)
        if core.dead or (core.admission.closed and core.heap.size == 0):
            monitor.leader = False
            return LEAVE
        core_now(core, core.last_now_ns)
        if core.clock_kind == USER or core_ready(core, worker):
            core_lead(core, worker)
            return NOTHING
        # Armed stays until it is spent: a deadline that was cancelled wakes once at most.
        if core.last_now_ns >= monitor.armed_ns or monitor.armed_ns > core.claim_limit_ns:
            monitor.armed_ns = core_claimable_ns(core)


cdef inline int64_t core_wait_deadline(Core* core, Worker* worker) noexcept nogil:
    """Until when, on the real clock, the leader waits. Monitor held."""
    cdef int64_t armed = core.monitor.armed_ns
    cdef int64_t rest
    if armed == never() or core.clock_kind == MANUAL:
        return never()
    if core.clock_kind == MONOTONIC:
        return armed
    # Nobody knows how fast a user's clock goes: as fast as real time, until it is seen to stand.
    rest = armed - core.last_now_ns
    if rest < worker.backoff_ns:
        rest = worker.backoff_ns
    if rest > 3600 * <int64_t>1000000000:
        rest = 3600 * <int64_t>1000000000
    return dp_now_ns() + rest


cdef inline void core_limbo(Core* core, Worker* worker) noexcept nogil:
    """Wait while the garbage collector decides about the engine: until it is dead, drains without
    its face, or has nothing left to do. Takes the monitor; called detached."""
    cdef Monitor* monitor = &core.monitor
    monitor_lock(monitor)
    if worker.leads:
        worker.leads = False
        monitor.leader = False
    while not core.dead and not core.kept and not (core.admission.closed and core.heap.size == 0):
        monitor_wait_epoch(monitor)
    monitor_unlock(monitor)


cdef inline Node* core_spare(Core* core) noexcept nogil:
    """A heap segment that is not needed any more, to be freed after unlocking. Monitor held."""
    return NULL if core.growing else heap_disown(&core.heap)


cdef inline bint core_would_block_all(Core* core) noexcept nogil:
    """Would one more blocked worker leave nobody to run what they wait for? Monitor held."""
    return core.blocked + core.inside_forever + 1 >= core.live
