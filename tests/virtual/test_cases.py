"""C10, C12, C13 and C43 under ``run_for``, in manual mode and with threads."""

import pytest

import duepool
from duepool import TaskState
from duepool.triggers import Every, FixedDelay

from . import S
from .support import Diary, nothing


@pytest.fixture(params=[0, 1], ids=["manual", "thread"])
def scheduler(make, clock, request):
    return make(request.param, clock=clock)


@pytest.fixture
def diary(clock):
    return Diary(clock)


def test_c10_due_now_needs_no_tick_and_order_is_by_due_time(make, scheduler, clock, diary):
    one, two = scheduler.submit_after(0, diary, "f"), scheduler.submit_at_ns(-S, diary, "g")
    assert scheduler.run_for(0) in (0, 1, 2)  # a thread may have begun before
    assert (one.state, two.state, clock.now_ns()) == (*[TaskState.SUCCEEDED] * 2, 0)
    late, early = scheduler.submit_after(100, diary, "A"), scheduler.submit_after(10, diary, "B")
    assert scheduler.run_for(100) == 2
    assert diary.entries == [(0, "f"), (0, "g"), (10, "B"), (100, "A")]
    assert (early.due_ns, late.due_ns) == (10 * S, 100 * S)


@pytest.mark.parametrize(
    ("trigger", "starts"),
    [
        (Every(10), [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
        (FixedDelay(10), [10, 23, 36, 49, 62, 75, 88]),
    ],
    ids=["fixed rate", "fixed delay"],
)
def test_c12_no_drift_by_the_bodys_own_duration(scheduler, clock, diary, trigger, starts):
    def body():
        diary()
        clock.advance(3)

    job = scheduler.repeat(trigger, body)
    assert scheduler.run_for(100) == len(starts)
    assert diary.instants == starts
    job.cancel()


@pytest.mark.parametrize(
    ("trigger", "starts"),
    [(Every(10), [*range(10, 101, 10)]), (FixedDelay(10), [10, 23, 36, 49, 62, 75, 88])],
    ids=["fixed rate", "fixed delay"],
)
def test_c12_with_bodies_that_sleep(make, clock, diary, trigger, starts):
    pool = make(1, clock=clock)

    def body():
        diary()
        duepool.sleep(3)

    job = pool.repeat(trigger, body)
    assert pool.run_for(100) == len(starts)
    assert diary.instants == starts
    job.cancel()


@pytest.mark.parametrize(
    ("catch_up", "starts"),
    [
        ("coalesce", [60.5, 61, 62]),
        ("burst", [60.5] * 60 + [61, 62]),
        ("skip", [61, 62]),
    ],
)
def test_c13_after_a_stall(make, clock, diary, catch_up, starts):
    pool = make(1, clock=clock)
    pool.submit(duepool.sleep, 60.5)  # the only worker is busy
    job = pool.with_options(catch_up=catch_up).repeat(Every(1), diary)
    pool.run_for(62)
    assert diary.instants == starts
    job.cancel()


def test_c43_no_flood_starves_the_rest(scheduler, clock):
    """Each body takes a while, since it moves the clock; the flood ebbs after 10 s."""
    end_ns = 10 * S
    periodic, wrong, early = [], [], []

    def begin():
        me = duepool.current_task()
        ahead = [
            t for t in scheduler.tasks(TaskState.QUEUED) if (t.due_ns, t.id) < (me.due_ns, me.id)
        ]
        wrong.extend(ahead)
        clock.advance(0.02)

    def submit(fn, at_ns):
        now_ns = clock.now_ns()
        if now_ns < end_ns:
            early.extend(t for t in [scheduler.submit_at_ns(at_ns, fn)] if t.due_ns < now_ns)

    def in_the_past():
        begin()
        submit(in_the_past, clock.now_ns() - S)

    def flood():
        begin()
        submit(flood, clock.now_ns())

    def every_second():
        periodic.append(duepool.current_task().due_ns)
        begin()

    job = scheduler.repeat(Every(1), every_second)
    scheduler.submit(in_the_past)
    for _ in range(3):
        scheduler.submit(flood)
    scheduler.run_for(10)
    assert periodic == [second * S for second in range(1, 11)]
    assert (wrong, early) == ([], [])
    job.cancel()


def test_a_job_without_end_is_bounded_by_until(scheduler, clock, diary):
    job = scheduler.repeat(Every(1), diary)
    assert scheduler.run_until_idle(until=5) == 5
    assert clock.now_ns() == 5 * S
    with pytest.raises(TimeoutError, match="until="):
        scheduler.run_until_idle(timeout=0.2)
    scheduler.submit_after(3, job.cancel)
    ran = scheduler.run_until_idle()
    assert 3 <= ran <= 4


def test_time_limits_of_bodies_are_deadlines(make, clock, diary):
    pool = make(2, clock=clock)

    def body():
        try:
            duepool.sleep(100)
        finally:
            diary("stopped")

    limited = pool.with_options(timeout=5)
    long, equal = limited.submit_after(1, body), limited.submit_after(2, duepool.sleep, 5)
    short = pool.submit_after(3, nothing)
    assert pool.run_for(20) == 3
    assert diary.entries == [(6, "stopped")]
    assert (long.cancel_reason, short.state) == ("timeout", TaskState.SUCCEEDED)
    # Time limits strike before sleepers wake.
    assert equal.cancel_reason == "timeout"
    assert clock.now_ns() == 20 * S


def test_latest_starts_are_deadlines(make, clock):
    pool = make(1, clock=clock)
    pool.submit(duepool.sleep, 10)
    late = pool.with_options(start_by=4).submit_after(1, nothing)
    seen = []
    late.add_done_callback(lambda _: seen.append(clock.now_ns()))
    pool.run_for(20)
    assert (seen, late.cancel_reason) == ([5 * S], "start_by")
