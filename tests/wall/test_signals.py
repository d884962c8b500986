"""Signals, finalizers and other threads in the middle of submissions and steps."""

import threading
import time

import pytest
from attacks.support import child, posix_signals

from duepool import ManualClock, ManualWallClock

from .support import HOUR, START, S, kept, later

PRELUDE = """
from datetime import UTC, datetime, timedelta
from duepool import ManualWallClock, _wall_watch
START = datetime(2024, 3, 1, tzinfo=UTC)
S = 10**9

"""


@posix_signals
def test_an_interrupted_step_is_done_before_it_is_felt(engine):
    """Whatever a signal handler raises in the middle of a step, all due times follow it."""
    out = child(
        engine,
        PRELUDE
        + """
clock, wall = ManualClock(), ManualWallClock(START)
scheduler = Scheduler(0, clock=clock, wall_clock=wall)
inner = scheduler._engine.config.face.wall
tasks = [scheduler.submit_at(START + timedelta(days=1, seconds=i), int) for i in range(20)]
campaign = Campaign(longest_s=600e-6)
wrong = 0
while campaign.goes_on():
    seconds = random.choice([-60, -1, 1, 60])
    before = wall.now_ns()
    campaign.round(lambda: wall.step(seconds))
    if wall.now_ns() == before:
        continue  # struck before the clock was moved
    offset = wall.now_ns() - clock.now_ns()
    START_NS = int(START.timestamp()) * S
    right = [START_NS + (86400 + i) * S - offset for i in range(20)]
    if [task.due_ns for task in tasks] != right:
        # Struck after the move and before anybody was told: the next look finds it.
        scheduler.wake()
        assert [task.due_ns for task in tasks] == right
        wrong += 1
    assert not inner._turn and not inner._todo
assert campaign.hits > 20, campaign.hits
assert wrong < campaign.hits / 2, (wrong, campaign.hits)
print("good")
""",
    )
    assert out == "good"


@posix_signals
def test_interrupted_submissions_leave_nothing_behind(engine):
    """A Ctrl-C during submit_at: the task is admitted or not; none that has ended stays kept, and
    the watching thread is there while one is kept, and ends after."""
    out = child(
        engine,
        PRELUDE
        + """
_wall_watch.LINGER_S = 0
scheduler = Scheduler(0)
inner = scheduler._engine.config.face.wall
campaign = Campaign(longest_s=300e-6)
when = datetime.now(UTC) + timedelta(hours=1)
while campaign.goes_on():
    campaign.round(lambda: scheduler.submit_at(when, int))
    assert set(inner._kept) <= set(scheduler.tasks())
    if inner._kept:
        assert _wall_watch._watch.threads
    scheduler.cancel_many(scheduler.tasks())
    assert not inner._kept
    assert not _wall_watch._watch.crews
assert campaign.hits > 20, campaign.hits
end = time.monotonic() + SOON
while any(t.name == _wall_watch.NAME for t in threading.enumerate()):
    assert time.monotonic() < end
    time.sleep(0.001)
print("good")
""",
    )
    assert out == "good"


@posix_signals
def test_a_handler_may_submit_and_step(engine):
    out = child(
        engine,
        PRELUDE
        + """
clock, wall = ManualClock(), ManualWallClock(START)
scheduler = Scheduler(0, clock=clock, wall_clock=wall, capacity=None)
real = Scheduler(0, capacity=None)
refused = 0

def handler(*_):
    global refused
    try:
        wall.step(1)
        scheduler.submit_at(START + timedelta(days=2), int)
        real.submit_at(datetime.now(UTC) + timedelta(days=2), int)
    except RuntimeError as error:
        # The reference engine refuses to be re-entered where its lock is held.
        assert "re-entered" in str(error), error
        refused += 1

signal.signal(signal.SIGALRM, handler)
tasks = []
end = time.monotonic() + CAMPAIGN_S
while time.monotonic() < end:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 600e-6))  # once in each round
    tasks.append(scheduler.submit_at(START + timedelta(days=1), int))
    wall.step(-1)
    real.submit_at(datetime.now(UTC) + timedelta(days=1), int)
    if len(tasks) > 20:
        tasks.pop().cancel()
        for each in (scheduler, real):
            each.cancel_many(each.tasks()[20:])
signal.setitimer(signal.ITIMER_REAL, 0)
scheduler.wake()
START_NS = int(START.timestamp()) * S
queued = [task for task in tasks if not task.done()]
assert {task.due_ns for task in queued} == {START_NS + 86400 * S - wall.now_ns()}
print("good")
""",
    )
    assert out == "good"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_finalizer_may_step_and_submit(make, clock, workers):
    wall = ManualWallClock(START)
    scheduler = make(workers, clock=clock, wall_clock=wall)
    tasks = [scheduler.submit_at(later(86_400), print) for _ in range(5)]

    class Steps:
        def __del__(self):
            wall.step(1)
            tasks.append(scheduler.submit_at(later(86_400), print))

    for _ in range(20):
        Steps()
    assert len(tasks) == 25
    assert {task.due_ns for task in tasks} == {(86_400 - 20) * S}


def test_a_step_just_when_another_one_is_through_is_not_lost(manual, wall):
    """The holder of the turn gives it up; who came a moment before has left his wish."""
    task = manual.submit_at(later(60), print)
    inner = manual._engine.config.face.wall

    class Turn(dict):
        late = True

        def pop(self, *args):
            if self.late:
                self.late = False
                wall.step(-30)  # finds the turn taken
            return super().pop(*args)

    inner._turn = Turn()
    wall.step(-3600)
    assert task.due_ns == HOUR + 90 * S
    assert not inner._turn
    assert not inner._todo


def test_threads_that_submit_cancel_and_step_agree_in_the_end(make):
    clock = ManualClock()
    wall = ManualWallClock(START)
    scheduler = make(1, clock=clock, wall_clock=wall, capacity=None)
    inner = scheduler._engine.config.face.wall
    end = time.monotonic() + 0.5
    errors: list[BaseException] = []
    left: list = []

    def submits(number: int) -> None:
        try:
            i = 0
            while time.monotonic() < end:
                i += 1
                task = scheduler.submit_at(later(1_000_000 + number + i % 7), print)
                if i % 50 == 0:
                    left.append((1_000_000 + number + i % 7, task))
                else:
                    task.cancel()
        except BaseException as error:
            errors.append(error)

    def steps() -> None:
        try:
            while time.monotonic() < end:
                wall.step(-10)
                wall.step(11)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=submits, args=(i,)) for i in range(3)]
    threads += [threading.Thread(target=steps) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert left
    stepped = wall.now_ns() - int(START.timestamp()) * S
    for seconds, task in left:
        assert task.due_ns == seconds * S - stepped
    assert kept(scheduler) == sorted(task.id for _, task in left)
    assert not inner._turn
    assert not inner._todo
    wall.step(1_000_000 + HOUR / S)
    scheduler.shutdown()
    assert all(task.done() for _, task in left)
