"""``Block``: who waits, in which order, and how a wait ends."""

import threading
import time

import pytest

from duepool import (
    CancelledError,
    QueueFull,
    SchedulerClosed,
    TaskState,
    WouldDeadlock,
    _room,
    overload,
)
from duepool._values import AFTER, NOW, RUN

from .support import (
    LATER_NS,
    SOON,
    Aside,
    blocked,
    check_left_behind,
    echo,
    free_places,
    in_line,
    nothing,
    wait_until,
)

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


@pytest.fixture
def full(make, clock):
    """Makes a scheduler in manual mode whose only place is taken, and the task that has it."""

    def factory(policy="block", **kwargs):
        scheduler = make(0, clock=clock, capacity=1, overload=policy, **kwargs)
        return scheduler, scheduler.submit_after(1, nothing)

    return factory


# -- places get free ----------------------------------------------------------------------------


def test_it_waits_until_a_task_is_claimed(make, gate):
    scheduler = make(1, capacity=1, overload="block")
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(nothing)
    waiting = blocked(scheduler, scheduler.submit, echo, 7)
    gate.release.set()
    assert waiting.result().result(SOON) == 7
    check_left_behind(scheduler, 1)


WAYS = {
    "a claim": lambda scheduler, task, clock: (clock.advance(1), scheduler.tick()),
    "a cancel": lambda scheduler, task, clock: task.cancel(),
    "a cancel by id": lambda scheduler, task, clock: scheduler.cancel(task.id),
    "cancel_many": lambda scheduler, task, clock: scheduler.cancel_many([task]),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_frees_a_place_lets_one_in(full, clock, way):
    scheduler, first = full()
    waiting = blocked(scheduler, scheduler.submit_after, 1, echo, 7)
    WAYS[way](scheduler, first, clock)
    task = waiting.result()
    assert task.state == QUEUED
    assert scheduler.stats().queued == 1
    check_left_behind(scheduler, 1)


def test_a_job_that_ends_lets_one_in(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="block")
    job = scheduler.repeat(1, nothing)
    waiting = blocked(scheduler, scheduler.submit, nothing)
    job.cancel()
    assert waiting.result().state == QUEUED


def test_every_submit_method_waits(full):
    scheduler, first = full()
    options = scheduler.with_options(name="x")
    calls = [
        lambda: scheduler.submit(nothing),
        lambda: scheduler.submit_after(0, nothing),
        lambda: scheduler.submit_after(1, nothing),
        lambda: scheduler.submit_at_ns(10**10, nothing),
        lambda: scheduler.submit_many([nothing])[0],
        lambda: scheduler.submit_many([nothing], delay=1)[0],
        lambda: options.submit(nothing),
        lambda: options.submit_after(1, nothing),
        lambda: options.submit_at_ns(10**10, nothing),
        lambda: options.submit_many([nothing])[0],
    ]
    for call in calls:
        waiting = blocked(scheduler, call)
        first.cancel()
        first = waiting.result()
        assert first.state == QUEUED
    check_left_behind(scheduler, 1)


def test_the_context_and_the_thread_are_the_submitters(full):
    import contextvars

    scheduler, first = full()
    variable = contextvars.ContextVar("variable", default="none")

    def submit():
        variable.set("mine")
        return scheduler.submit(variable.get)

    waiting = blocked(scheduler, submit)
    variable.set("another")
    first.cancel()
    task = waiting.result()
    scheduler.tick()
    assert task.result() == "mine"


# -- due times ----------------------------------------------------------------------------------


@pytest.mark.parametrize("past_due", ["run", "reject"])
def test_waiting_does_not_put_the_due_time_off(full, clock, past_due):
    scheduler, first = full(past_due=past_due)
    waiting = blocked(scheduler, scheduler.submit_after, 10, nothing)
    clock.advance(4)  # nobody ticks
    first.cancel()
    task = waiting.result()
    assert task.due_ns == 10 * 10**9
    waiting = blocked(scheduler, scheduler.submit_at_ns, 11 * 10**9 + 1, nothing)
    clock.advance(5)
    task.cancel()
    task = waiting.result()
    assert task.due_ns == 11 * 10**9 + 1
    waiting = blocked(scheduler, scheduler.submit_many, [nothing, nothing][:1], 3)
    clock.advance(1)
    task.cancel()
    assert waiting.result()[0].due_ns == 12 * 10**9


@pytest.mark.parametrize("past_due", ["run", "reject"])
def test_what_becomes_due_while_it_waits_is_due_at_once(full, clock, past_due):
    scheduler, task = full(past_due=past_due)
    for call in (
        lambda: scheduler.submit_after(2, nothing),
        lambda: scheduler.submit_at_ns(clock.now_ns() + 2 * 10**9, nothing),
        lambda: scheduler.submit_many([nothing], 2)[0],
        lambda: scheduler.submit(nothing),
    ):
        waiting = blocked(scheduler, call)
        clock.advance(5)
        task.cancel()
        task = waiting.result()
        assert task.due_ns == clock.now_ns()
    assert scheduler.tick() == 1


# -- first come, first served -------------------------------------------------------------------


def test_first_come_first_served(full):
    scheduler, task = full()
    waiting = [blocked(scheduler, scheduler.submit_after, 1, nothing) for _ in range(8)]
    for index in range(8):
        task.cancel()
        task = waiting[index].result()
        assert [w.ended for w in waiting] == [True] * (index + 1) + [False] * (7 - index)
    check_left_behind(scheduler, 1)


def test_nobody_overtakes_the_line(make, clock):
    scheduler = make(0, clock=clock, capacity=2, overload="block")
    first, second = (scheduler.submit_after(1, nothing) for _ in range(2))
    waiting = blocked(scheduler, scheduler.submit_many, [nothing, nothing])
    first.cancel()  # one place is free, but it is kept for who came first
    late = blocked(scheduler, scheduler.submit, nothing)
    assert not waiting.ended
    engine = scheduler._engine
    assert engine.take_slot(-1, 1) == 2
    second.cancel()
    tasks = waiting.result()
    assert not late.ended
    tasks[0].cancel()
    assert late.result().state == QUEUED
    check_left_behind(scheduler, 2)


def test_who_gives_up_is_passed_over(full):
    scheduler, task = full(overload.Block(timeout=None))
    hasty = scheduler._engine.config.face.room
    out = Aside(hasty.wait, scheduler._engine, -1, 1, 0.05, lambda: None)
    wait_until(lambda: in_line(scheduler) == 1 or out.ended, "it to stand in line")
    waiting = Aside(scheduler.submit, nothing)
    assert out.result() is None
    wait_until(lambda: in_line(scheduler) == 1, "the other to be the only one")
    task.cancel()
    assert waiting.result().state == QUEUED


def test_several_places_at_once_serve_several(make, clock):
    scheduler = make(0, clock=clock, capacity=5, overload="block")
    tasks = [scheduler.submit_after(1, nothing) for _ in range(5)]
    waiting = [blocked(scheduler, scheduler.submit_after, 1, nothing) for _ in range(9)]
    scheduler.cancel_many(tasks)
    wait_until(lambda: sum(w.ended for w in waiting) == 5, "five to enter")
    assert [w.ended for w in waiting] == [True] * 5 + [False] * 4
    assert scheduler.stats().queued == 5
    for w in waiting[:4]:
        w.result().cancel()
    wait_until(lambda: all(w.ended for w in waiting), "the others to enter")
    check_left_behind(scheduler, 5)


# -- how a wait ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, 0.05, 1e-9])
def test_a_timeout_is_queue_full_in_real_time(full, timeout):
    scheduler, task = full(overload.Block(timeout))
    start = time.monotonic()
    with pytest.raises(QueueFull, match="capacity is 1"):
        scheduler.submit(nothing)
    assert max(timeout, 0) <= time.monotonic() - start < SOON
    stats = scheduler.stats()
    assert (stats.rejected, stats.queued, stats.admitted) == (1, 1, 1)
    check_left_behind(scheduler, 1)
    task.cancel()
    assert scheduler.submit(nothing).state == QUEUED


@pytest.mark.parametrize("timeout", [1e12, float("inf"), None])
def test_a_timeout_may_be_as_long_as_one_likes(full, timeout):
    scheduler, task = full(overload.Block(timeout))
    waiting = blocked(scheduler, scheduler.submit, nothing)
    task.cancel()
    assert waiting.result().state == QUEUED


@pytest.mark.parametrize(
    "end", ["shutdown", "shutdown_now", "stop", "drop"], ids=lambda end: f"by_{end}"
)
def test_shutdown_ends_every_wait_with_scheduler_closed(full, end):
    scheduler, _ = full()
    waiting = [blocked(scheduler, scheduler.submit, nothing) for _ in range(5)]
    if end == "stop":
        scheduler.stop(grace=0, then=0)
    elif end == "drop":
        scheduler._engine.close(0)
    else:
        getattr(scheduler, end)()
    for call in waiting:
        with pytest.raises(SchedulerClosed):
            call.result()
    assert in_line(scheduler) == 0
    assert scheduler._engine.counts().inside_waiting == 0


def test_a_failing_initializer_ends_every_wait(make, gate, caplog):
    from duepool import BrokenScheduler

    caplog.set_level("CRITICAL", "duepool")
    fail = threading.Event()

    def initializer():
        assert fail.wait(SOON)
        raise RuntimeError("no")

    scheduler = make(1, initializer=initializer, capacity=1, overload="block")
    scheduler.submit(nothing)
    waiting = [blocked(scheduler, scheduler.submit, nothing) for _ in range(3)]
    fail.set()
    for call in waiting:
        with pytest.raises(BrokenScheduler):
            call.result()


def test_a_shutdown_with_wait_does_not_wait_for_who_waits_for_room(make, gate):
    # A body that waits for room is told at once; its worker ends.
    scheduler = make(2, capacity=1, overload="block")
    scheduler.submit(gate)
    gate.wait_entered()
    inner = scheduler.submit(lambda: scheduler.submit(nothing))
    scheduler.submit_after(1000, nothing)
    wait_until(lambda: in_line(scheduler) == 1, "the body to wait")
    closing = Aside(scheduler.shutdown, delayed="cancel", timeout=SOON)
    with pytest.raises(SchedulerClosed):
        inner.result(SOON)
    gate.release.set()
    assert closing.result().complete


# -- bodies that wait for room ------------------------------------------------------------------


def test_c27_the_only_worker_waits_for_room(make):
    scheduler = make(1, capacity=1, overload="block")
    scheduler_full = threading.Event()

    def body():
        scheduler.submit(nothing)
        scheduler_full.set()
        return scheduler.submit(nothing)

    outer = scheduler.submit(body)
    with pytest.raises(WouldDeadlock):
        outer.result(SOON)
    wait_until(lambda: scheduler.stats().succeeded == 1, "the other to run")
    check_left_behind(scheduler, 1)


def test_c27_two_workers_wait_for_room(make):
    scheduler = make(2, capacity=2, overload="block")
    barrier = threading.Barrier(2)

    def body():
        barrier.wait(SOON)
        for _ in range(500):
            try:
                scheduler.submit(nothing)
            except WouldDeadlock:
                return "refused"
        return "went on"

    # Both submit as fast as they can: sooner or later one waits, and then the other. That one is
    # refused, and its worker makes room for the first.
    outcomes = [scheduler.submit(body) for _ in range(2)]
    assert sorted(task.result(SOON) for task in outcomes) == ["refused", "went on"]
    wait_until(lambda: scheduler.stats().queued == 0, "the rest to run")
    check_left_behind(scheduler, 2)


def test_a_timed_wait_is_no_deadlock(make):
    scheduler = make(1, capacity=1, overload=overload.Block(0.05))

    def body():
        scheduler.submit(nothing)
        with pytest.raises(QueueFull):
            scheduler.submit(nothing)
        return 5

    assert scheduler.submit(body).result(SOON) == 5
    check_left_behind(scheduler, 1)


def test_a_worker_waits_while_another_makes_room(make, gate):
    scheduler = make(2, capacity=1, overload="block")
    scheduler.submit(gate)
    gate.wait_entered()
    outer = scheduler.submit(lambda: (scheduler.submit(nothing), scheduler.submit(echo, 7))[1])
    wait_until(lambda: in_line(scheduler) == 1, "the body to wait for room")
    assert scheduler._engine.counts().inside_waiting == 1
    gate.release.set()
    assert outer.result(SOON).result(SOON) == 7
    check_left_behind(scheduler, 1)


def test_a_worker_that_is_about_to_be_woken_is_no_reason_for_a_deadlock(make, new_gate):
    # One worker waits for room. An outsider frees the place, and before he says so the other worker
    # begins to wait for a task: it must not be told that nobody is left to run anything.
    scheduler = make(2, capacity=1, overload="block")
    engine, room = scheduler._engine, scheduler._engine.config.face.room
    holder = scheduler.submit_after(1000, nothing)
    goes_on = new_gate()

    def outside(kind, value, body):
        return engine.submit_as(None, kind, value, body, (), None, None, -1, RUN)

    def second():
        goes_on()
        try:
            return target.result()
        except CancelledError:
            return "cancelled"

    target = outside(AFTER, LATER_NS, nothing)
    waiter = outside(NOW, 0, lambda: scheduler.submit(echo, 1))
    wait_until(lambda: engine.counts().inside_waiting == 1, "the first to wait")
    other = outside(NOW, 0, second)
    goes_on.wait_entered()
    room.notify = lambda: None
    assert holder.cancel()
    del room.notify
    goes_on.release.set()
    assert waiter.result(SOON).result(SOON) == 1
    target.cancel()
    assert other.result(SOON) == "cancelled"
    check_left_behind(scheduler, 1)


def test_room_that_appears_while_a_deadlock_is_declared(full, monkeypatch):
    scheduler, first = full()

    def declare(engine, enter, counted):
        assert Aside(first.cancel).result()
        raise WouldDeadlock("nobody is left")

    monkeypatch.setattr(_room, "block_or_raise", declare)
    assert scheduler.submit_after(1, nothing).state == QUEUED
    with pytest.raises(WouldDeadlock, match="nobody is left"):
        scheduler.submit(nothing)  # and nobody makes room for this one
    check_left_behind(scheduler, 1)


def test_on_the_ticking_thread_it_is_would_deadlock(full, clock):
    scheduler, first = full()
    seen = []

    def body():
        scheduler.submit_after(1, nothing)
        with pytest.raises(WouldDeadlock):
            scheduler.submit(nothing)
        seen.append(in_line(scheduler))

    first.cancel()
    scheduler.submit(body)
    assert scheduler.tick() == 1
    assert seen == [0]
    check_left_behind(scheduler, 1)


def test_a_callback_on_the_ticking_thread_too(full, clock):
    scheduler, first = full()
    seen = []

    def callback(task):
        scheduler.submit_after(1, nothing)
        try:
            scheduler.submit(nothing)
        except WouldDeadlock:
            seen.append("refused")

    first.add_done_callback(callback)
    clock.advance(1)
    assert scheduler.tick() == 1
    assert seen == ["refused"]
    check_left_behind(scheduler, 1)


def test_a_body_of_another_scheduler_waits_as_any_thread(make, gate):
    scheduler = make(1, capacity=1, overload="block")
    other = make(1)
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(nothing)
    outer = other.submit(lambda: scheduler.submit(echo, 7))
    wait_until(lambda: in_line(scheduler) == 1, "the body to wait")
    assert (scheduler._engine.counts().inside_waiting, other._engine.counts().inside_waiting) == (
        0,
        0,
    )
    gate.release.set()
    assert outer.result(SOON).result(SOON) == 7


# -- c32 under Block ----------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 7])
def test_c32_every_accepted_task_ends_and_every_other_call_raises(make, capacity):
    for round_ in range(5):
        scheduler = make(2, capacity=capacity, overload="block")
        accepted: list[list] = [[] for _ in range(8)]
        refused = [0] * 8
        start = threading.Barrier(9)

        def submit(k, scheduler=scheduler, accepted=accepted, refused=refused, start=start):
            start.wait(SOON)
            for _ in range(200):
                try:
                    accepted[k].append(scheduler.submit(nothing))
                except SchedulerClosed:
                    refused[k] += 1

        threads = [Aside(submit, k) for k in range(8)]
        start.wait(SOON)
        wait_until(lambda s=scheduler, r=round_: s.stats().admitted >= 100 * r, "some to enter")
        scheduler.shutdown(wait=False)
        for thread in threads:
            thread.result()
        assert scheduler.await_termination(SOON)
        tasks = [task for some in accepted for task in some]
        assert len(tasks) + sum(refused) == 8 * 200
        assert {task.state for task in tasks} <= {SUCCEEDED}
        stats = scheduler.stats()
        assert (stats.admitted, stats.queued) == (len(tasks), 0)
        assert in_line(scheduler) == 0


def test_free_places_are_counted_exactly(full):
    scheduler, first = full()
    assert free_places(scheduler) == 0
    first.cancel()
    assert free_places(scheduler) == 1
