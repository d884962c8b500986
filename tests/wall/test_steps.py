"""``submit_at`` keeps its wall-clock instant when the wall clock steps; all on manual clocks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duepool import ManualClock, ManualWallClock, TaskState
from duepool._values import CANCEL_LATER

from .support import HOUR, START, START_NS, S, kept, later


def test_it_is_due_when_the_wall_clock_says_so(manual, clock, ran):
    task = manual.submit_at(later(60), ran.append, 1)
    assert task.due_ns == 60 * S
    clock.advance(59.999_999_999)
    assert manual.tick() == 0
    clock.advance(0.000_000_001)
    assert manual.tick() == 1
    assert ran == [1]
    assert kept(manual) == []


@pytest.mark.parametrize("seconds", [-3600, -0.001, -1e-9, 1e-9, 0.001, 30, 59.999_999_999])
def test_a_step_moves_the_due_time_by_just_that(manual, wall, seconds):
    task = manual.submit_at(later(60), print)
    plain = manual.submit_after(60, print)
    at_ns = manual.submit_at_ns(60 * S, print)
    wall.step(seconds)
    assert task.due_ns == 60 * S - round(seconds * S)
    assert (plain.due_ns, at_ns.due_ns) == (60 * S, 60 * S)


def test_a_suspension_is_a_step(manual, clock, wall, ran):
    """The wall clock has gone on, the monotonic one has not."""
    manual.submit_at(later(8 * 3600), ran.append, "wall")
    manual.submit_after(8 * 3600, ran.append, "monotonic")
    wall.step(8 * 3600)
    assert manual.tick() == 1
    assert ran == ["wall"]
    clock.advance(8 * 3600)
    assert manual.tick() == 1


def test_both_clocks_that_go_on_together_are_no_step(manual, clock, wall):
    task = manual.submit_at(later(60), print)
    for _ in range(10):
        clock.advance(5)
        wall.step(5)
        assert task.due_ns == 60 * S
    assert manual.tick() == 0


def test_a_wall_clock_on_the_schedulers_clock(make, clock, ran):
    wall = ManualWallClock(START, clock)
    scheduler = make(0, clock=clock, wall_clock=wall)
    task = scheduler.submit_at(later(60), ran.append, 1)
    clock.advance(30)
    wall.step(-3600)
    assert task.due_ns == 60 * S + HOUR
    other = scheduler.submit_at(later(60), ran.append, 2)
    assert other.due_ns == task.due_ns
    assert scheduler.run_for(3630) == 2
    assert ran == [1, 2]
    assert wall.now() == later(60)


def test_back_and_forth_ends_where_it_began(manual, wall):
    tasks = [manual.submit_at(later(60 * (i + 1)), print) for i in range(5)]
    before = [task.due_ns for task in tasks]
    for seconds in (90, -90, -1e6, 2e6, -1e6):
        wall.step(seconds)
    assert [task.due_ns for task in tasks] == before
    assert manual.tick() == 0


def test_one_that_was_stepped_over_waits_again_after_a_step_back(manual, clock, wall, ran):
    clock.advance(10)
    task = manual.submit_at(later(60), ran.append, 1)
    clock.advance(10)
    wall.step(10 + 3600)
    assert task.due_ns == 20 * S  # due now
    wall.step(-3600)
    assert task.due_ns == 70 * S
    assert manual.tick() == 0
    clock.advance(50)
    assert manual.tick() == 1


def test_one_that_is_due_keeps_its_place(manual, clock, wall, ran):
    """It waits for a worker; a later step does not make it due later than what came after it."""
    clock.advance(1000)
    manual.submit_at(later(60), ran.append, "wall")
    wall.step(120)
    clock.advance(1)
    manual.submit(ran.append, "after it")
    wall.step(60)
    clock.advance(1)
    wall.step(60)
    assert manual.tick() == 2
    assert ran == ["wall", "after it"]


def test_a_step_past_several_runs_each_once_in_order(manual, clock, wall, ran):
    for number in range(1, 6):
        manual.submit_at(later(60 * number), ran.append, number)
    manual.submit_after(90, ran.append, "plain")
    wall.step(210)
    # Those that were passed are due at this instant, in the order of their ids.
    assert [task.due_ns for task in manual.tasks()] == [0, 0, 0, 30 * S, 90 * S, 90 * S]
    assert manual.tick() == 3
    assert ran == [1, 2, 3]
    clock.advance(90)
    assert manual.tick() == 3
    assert ran == [1, 2, 3, 4, 5, "plain"]


def test_those_passed_at_one_instant_run_in_the_order_of_ids(manual, wall, ran):
    """They are all due now, and now is one instant of a manual clock."""
    for number in (3, 1, 2):
        manual.submit_at(later(60 * number), ran.append, number)
    wall.step(3600)
    assert {task.due_ns for task in manual.tasks()} == {0}
    manual.tick()
    assert ran == [3, 1, 2]


def test_order_is_by_due_and_id_after_a_step_as_before(manual, clock, wall, ran):
    for number in range(50):
        manual.submit_at(later(100 + (number * 7) % 10), ran.append, ((number * 7) % 10, number))
    wall.step(-1000)
    wall.step(37)
    clock.advance(2000)
    assert manual.tick() == 50
    assert ran == sorted(ran)


def test_what_has_passed_at_once_runs_now_and_is_not_moved(manual, wall, ran):
    manual.submit_at(later(-5), ran.append, 1)
    manual.submit_at(later(0), ran.append, 2)
    wall.step(-3600)
    assert manual.tick() == 2


def test_a_rescheduled_task_goes_by_its_new_delay(manual, clock, wall):
    first, other, last = (manual.submit_at(later(60), print) for _ in range(3))
    assert first.reschedule(100)
    assert last.reschedule(100)
    wall.step(-3600)
    assert [task.due_ns for task in (first, other, last)] == [100 * S, 60 * S + HOUR, 100 * S]
    assert kept(manual) == [other.id]
    wall.step(3600 + 30)
    assert [task.due_ns for task in (first, other, last)] == [100 * S, 30 * S, 100 * S]


def test_a_task_that_ended_is_forgotten_at_once(manual, clock, wall):
    tasks = [manual.submit_at(later(60 + i), print) for i in range(4)]
    assert tasks[1].cancel()
    assert kept(manual) == [1, 3, 4]
    clock.advance(60)
    assert manual.tick() == 1
    assert kept(manual) == [3, 4]
    manual.cancel_many(tasks)
    assert kept(manual) == []
    wall.step(1)


def test_a_task_that_ends_while_it_is_about_to_be_kept_is_not(manual):
    """Between the adding of its watcher and the keeping: the watcher has come too early."""

    class Ends:
        due_ns = 60 * S
        _engine = manual._engine

        def _watch(self, watcher):
            watcher(self)
            return True

        def done(self):
            return True

    inner = manual._engine.config.face.wall
    inner.track(Ends(), START_NS + 60 * S)
    assert inner._kept == {}


def test_a_running_task_is_forgotten_at_the_next_look(make, clock, wall, gate):
    scheduler = make(1, clock=clock, wall_clock=wall)
    task = scheduler.submit_at(later(60), gate)
    clock.advance(60)
    gate.wait_entered()
    wall.step(3600)
    assert kept(scheduler) == []
    assert task.due_ns == 60 * S
    gate.release.set()
    assert task.result(30) is None


def test_options_go_by_the_wall_clock_too(manual, clock, wall, ran):
    named = manual.with_options(name="reminder").submit_at(later(60), ran.append, 1)
    bounded = manual.with_options(timeout=5, start_by=10).submit_at(later(60), ran.append, 2)
    wall.step(-60)
    assert named.due_ns == bounded.due_ns == 120 * S
    clock.advance(120)
    assert manual.tick() == 2
    assert ran == [1, 2]


def test_workers_wake_up_for_a_step(make, clock, wall):
    scheduler = make(2, clock=clock, wall_clock=wall)
    far = scheduler.submit_at(later(1e6), print)
    near = scheduler.submit_at(later(3600), str, "here")
    wall.step(3600)
    assert near.result(30) == "here"
    assert far.state == TaskState.QUEUED


def test_schedulers_on_one_wall_clock_go_by_their_own_clocks(make, wall):
    clocks = [ManualClock(), ManualClock(5 * S)]
    schedulers = [make(0, clock=clock, wall_clock=wall) for clock in clocks]
    tasks = [scheduler.submit_at(later(60), print) for scheduler in schedulers]
    assert [task.due_ns for task in tasks] == [60 * S, 65 * S]
    wall.step(-1)
    assert [task.due_ns for task in tasks] == [61 * S, 66 * S]


def test_a_repeated_local_time_and_a_gap_are_what_python_says(manual, wall):
    """``fold`` chooses the instant; the zone's rules are Python's."""
    berlin = ZoneInfo("Europe/Berlin")
    wall.set(datetime(2024, 10, 26, 12, tzinfo=UTC))
    first = manual.submit_at(datetime(2024, 10, 27, 2, 30, tzinfo=berlin), print)
    second = manual.submit_at(datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=1), print)
    assert first.due_ns == (12 * 60 + 30) * 60 * S
    assert second.due_ns - first.due_ns == HOUR
    wall.set(datetime(2024, 10, 27, 0, 45, tzinfo=UTC))  # between the two
    assert (first.due_ns, second.due_ns) == (0, 45 * 60 * S)
    assert manual.tick() == 1

    wall.set(datetime(2024, 3, 30, 12, tzinfo=UTC))
    gap = manual.submit_at(datetime(2024, 3, 31, 2, 30, tzinfo=berlin), print)
    assert gap.due_ns == (13 * 60 + 30) * 60 * S


# -- the ends of time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "when",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=ZoneInfo("America/New_York")),
        START + timedelta(days=366 * 300),
    ],
)
def test_too_far_away_is_an_overflow_and_changes_nothing(manual, wall, when):
    with pytest.raises(OverflowError, match="when"):
        manual.submit_at(when, print)
    assert (manual.stats().admitted, kept(manual)) == (0, [])
    wall.step(1)
    assert manual.tick() == 0


def test_the_first_instant_of_the_calendar_has_passed(manual, ran):
    assert manual.submit_at(datetime.min.replace(tzinfo=UTC), ran.append, 1).due_ns == 0
    assert manual.tick() == 1


def test_the_last_instant_of_the_clock_is_reached(make, wall):
    clock = ManualClock(2**63 - 1 - 60 * S)
    scheduler = make(0, clock=clock, wall_clock=wall)
    task = scheduler.submit_at(later(60), print)
    assert task.due_ns == 2**63 - 1
    with pytest.raises(OverflowError, match="when"):
        scheduler.submit_at(later(61), print)
    # The step would lead beyond it: as far as it goes, and back again.
    wall.step(-3600)
    assert task.due_ns == 2**63 - 1
    wall.step(3600 + 30)
    assert task.due_ns == 2**63 - 1 - 30 * S
    assert kept(scheduler) == [task.id]


def test_a_step_of_thousands_of_years(manual, wall):
    task = manual.submit_at(later(60), print)
    wall.set(datetime.max.replace(tzinfo=UTC))
    assert task.due_ns == 0
    wall.set(datetime.min.replace(tzinfo=UTC))
    assert task.due_ns == 2**63 - 1
    wall.set(START)
    assert task.due_ns == 60 * S


def test_reject_refuses_what_has_passed(make, clock, wall):
    scheduler = make(0, clock=clock, wall_clock=wall, past_due="reject")
    with pytest.raises(ValueError, match="passed"):
        scheduler.submit_at(later(-1), print)
    task = scheduler.submit_at(later(1), print)
    wall.step(10)  # what was accepted runs
    assert task.due_ns == 0
    assert scheduler.tick() == 1


# -- closed schedulers ---------------------------------------------------------------------------


def test_a_step_during_a_shutdown_that_runs_what_is_queued(make, clock, wall, ran):
    scheduler = make(1, clock=clock, wall_clock=wall)
    scheduler.submit_at(later(3600), ran.append, 1)
    scheduler.submit_at(later(7200), ran.append, 2)
    scheduler.shutdown(wait=False)
    wall.step(3600)
    wall.step(3600)
    assert scheduler.await_termination(30)
    assert ran == [1, 2]
    wall.step(-1)


@pytest.mark.parametrize(("seconds", "moved_on"), [(-3600, 0), (3600, 1), (3600, 0)])
def test_a_step_in_the_middle_of_a_shutdown(manual, clock, wall, ran, seconds, moved_on):
    """Closed, and what is due later is not cancelled yet: whatever the step does, each of the tasks
    either runs or is cancelled, and what was due runs."""
    due = manual.submit_at(later(60), ran.append, "due")
    clock.advance(60)
    wall.step(60)
    core = manual._engine
    later_on = manual.submit_at(later(120), ran.append, "later")
    limit = core.close(CANCEL_LATER)
    clock.advance(moved_on)
    wall.step(seconds)
    core.cancel_queued(limit)
    manual.tick()
    assert due.done()
    # A step over it makes it due within the limit only if no time has passed since the closing.
    assert later_on.cancelled() == (seconds < 0 or moved_on > 0)
    assert ran == (["due"] if later_on.cancelled() else ["due", "later"])
    assert core.is_quiet()


def test_a_shutdown_that_cancels_forgets_everything(manual, wall):
    tasks = [manual.submit_at(later(i + 1), print) for i in range(10)]
    manual.shutdown(cancel_futures=True)
    assert kept(manual) == []
    wall.step(3600)
    assert all(task.cancelled() for task in tasks)
