"""The only lock of an engine, with the armed deadline and leadership.

At most one idle worker is the *leader*: it waits on ``leader_cv`` until ``armed_ns``. The other
idle workers are *followers*: they wait on ``follower_cv`` without limit, until they take the token
or the epoch changes.

Guarantee, with the monitor held by nobody: if the heap is not empty and some worker is idle, then
there is a leader armed at or before the head's due time, or one that was called and has not had the
monitor since, or the token is out, or a worker is on its way from a body to the monitor.

Why. A submission that is due before ``armed_ns`` lowers it and calls the leader; without a leader
it puts the token out. A worker that claims gives up its leadership and, if the heap is not empty,
puts the token out. A worker about to wait becomes the leader if there is none. ``armed_ns`` only
falls while a leader waits, except when the leader itself finds it spent; so a deadline that was
cancelled costs one wake-up at most, and a later submission never costs any. A leader keeps its
leadership from its wake-up until it has the monitor again, attached to the interpreter: nobody is
called in its place meanwhile.

The token is a flag, not a count of signals: one called follower is enough, since it becomes the
leader or claims, and hands over in turn. Whoever takes it clears it, so that a signal is never
counted twice and a spurious wake-up takes nothing.

Guard of every field: ``lock``.
"""

from libc.stdint cimport int64_t, uint64_t

from .types cimport never
from .platform cimport (
    dp_cond,
    dp_cond_broadcast,
    dp_cond_destroy,
    dp_cond_init,
    dp_cond_signal,
    dp_cond_wait,
    dp_cond_wait_until,
    dp_mutex,
    dp_mutex_destroy,
    dp_mutex_init,
    dp_mutex_lock,
    dp_mutex_unlock,
)

cdef enum Call:
    # Whom to signal once the monitor is free.
    CALL_NOBODY = 0
    CALL_LEADER = 1
    CALL_FOLLOWER = 2
    CALL_ALL = 3

cdef struct Monitor:
    dp_mutex lock
    dp_cond leader_cv
    dp_cond follower_cv
    int64_t armed_ns       # until when the leader waits, on the scheduler's clock
    int64_t wakeups        # returns of idle workers from their wait
    uint64_t wake_count    # how often wake() was called; see user clocks
    uint64_t epoch         # changes when every idle worker must look again
    bint leader            # there is a leader, waiting or on its way
    bint called            # the leader was called and has not had the monitor since
    bint token             # a follower was called and none has taken it yet
    int followers          # workers that wait on follower_cv


cdef inline int monitor_init(Monitor* monitor) noexcept nogil:
    """0, or -1 when the platform has no lock to give."""
    if dp_mutex_init(&monitor.lock):
        return -1
    if dp_cond_init(&monitor.leader_cv):
        dp_mutex_destroy(&monitor.lock)
        return -1
    if dp_cond_init(&monitor.follower_cv):
        dp_cond_destroy(&monitor.leader_cv)
        dp_mutex_destroy(&monitor.lock)
        return -1
    monitor.armed_ns = 0
    monitor.wakeups = 0
    monitor.wake_count = 0
    monitor.epoch = 0
    monitor.leader = False
    monitor.called = False
    monitor.token = False
    monitor.followers = 0
    return 0


cdef inline void monitor_destroy(Monitor* monitor) noexcept nogil:
    """Only once nobody waits and nobody will lock again."""
    dp_cond_destroy(&monitor.follower_cv)
    dp_cond_destroy(&monitor.leader_cv)
    dp_mutex_destroy(&monitor.lock)


cdef inline void monitor_lock(Monitor* monitor) noexcept nogil:
    dp_mutex_lock(&monitor.lock)


cdef inline void monitor_unlock(Monitor* monitor) noexcept nogil:
    dp_mutex_unlock(&monitor.lock)


cdef inline int monitor_due_added(Monitor* monitor, int64_t due_ns) noexcept nogil:
    """A task due at ``due_ns`` is in the heap: whom to signal. Call with the monitor held."""
    if monitor.leader:
        if due_ns < monitor.armed_ns:
            monitor.armed_ns = due_ns
            if not monitor.called:
                monitor.called = True
                return CALL_LEADER
        return CALL_NOBODY
    return monitor_hand_over(monitor, True)


cdef inline int monitor_hand_over(Monitor* monitor, bint work_left) noexcept nogil:
    """Somebody must watch the heap if there is work left. Call with the monitor held."""
    if work_left and not monitor.leader and not monitor.token and monitor.followers > 0:
        monitor.token = True
        return CALL_FOLLOWER
    return CALL_NOBODY


cdef inline int monitor_recall(Monitor* monitor) noexcept nogil:
    """Every idle worker must look again. Call with the monitor held."""
    monitor.epoch += 1
    monitor.called = True
    return CALL_ALL


cdef inline void monitor_signal(Monitor* monitor, int whom) noexcept nogil:
    """Signal as decided before; call after unlocking, so that the woken one finds it free."""
    if whom == CALL_NOBODY:
        return
    if whom == CALL_LEADER:
        dp_cond_signal(&monitor.leader_cv)
    elif whom == CALL_FOLLOWER:
        dp_cond_signal(&monitor.follower_cv)
    else:
        dp_cond_broadcast(&monitor.leader_cv)
        dp_cond_broadcast(&monitor.follower_cv)


cdef inline void monitor_wait_leader(Monitor* monitor, int64_t deadline_ns) noexcept nogil:
    """Wait as the leader until called or until ``deadline_ns`` of the real monotonic clock
    (2**63-1: without limit). May return early. Call with the monitor held."""
    if not monitor.called:
        if deadline_ns == never():
            dp_cond_wait(&monitor.leader_cv, &monitor.lock)
        else:
            dp_cond_wait_until(&monitor.leader_cv, &monitor.lock, deadline_ns)
        monitor.wakeups += 1
    monitor.called = False


cdef inline void monitor_wait_epoch(Monitor* monitor) noexcept nogil:
    """Wait until the epoch changes, taking no token. Call with the monitor held."""
    cdef uint64_t epoch = monitor.epoch
    while monitor.epoch == epoch:
        dp_cond_wait(&monitor.follower_cv, &monitor.lock)


cdef inline void monitor_wait_follower(Monitor* monitor) noexcept nogil:
    """Wait as a follower until the token is taken or the epoch changes. Call with the monitor
    held."""
    cdef uint64_t epoch = monitor.epoch
    monitor.followers += 1
    while not monitor.token and monitor.epoch == epoch:
        dp_cond_wait(&monitor.follower_cv, &monitor.lock)
        monitor.wakeups += 1
    monitor.followers -= 1
    monitor.token = False
