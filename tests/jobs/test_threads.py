"""Jobs under many hands: threads, signal handlers, finalizers, and Ctrl-C at every instruction."""

import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from duepool import JobState, ManualClock, Scheduler, WouldDeadlock
from duepool.errors import InvalidStateError, SchedulerClosed
from duepool.triggers import Every, FixedDelay

from .support import SOON, Asked, Starts, run_due, run_to, size, until

pytestmark = pytest.mark.timeout(size(180, 1_800))

Make = Callable[..., Scheduler]
S = 10**9

STORM_S = size(1, 30)
"""Real seconds of each storm."""

STRIDE = size(23, 1)
"""Ctrl-C strikes at each of the first instructions of a step, and then at every so manieth."""

STEERS: list[Callable[[Any], Any]] = [
    lambda job: job.pause(),
    lambda job: job.resume(),
    lambda job: job.run_now(),
    lambda job: job.reschedule(0.001),
    lambda job: job.reschedule(FixedDelay(0.001)),
    lambda job: job.skipped,
    lambda job: job.next_due_ns,
    repr,
]


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@pytest.mark.parametrize("catch_up", ["coalesce", "burst", "skip"])
def test_a_storm_of_steering(make: Make, switching: None, overlap: str, catch_up: str) -> None:
    capacity, most = 5, 2
    scheduler = make(4, capacity=capacity)
    at_once: list[None] = []
    calls: list[None] = []
    worst: list[int] = [0]

    def body() -> None:
        at_once.append(None)
        calls.append(None)
        worst[0] = max(worst[0], len(at_once))
        if len(calls) % 50 == 0:
            job.run_now()
        at_once.pop()

    options = scheduler.with_options(
        overlap=overlap, catch_up=catch_up, max_instances=most if overlap == "allow" else None
    )
    job = options.repeat(0.0005, body)
    end = time.monotonic() + STORM_S / 9
    faults: list[BaseException] = []

    def steer(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while time.monotonic() < end:
                rng.choice(STEERS)(job)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=steer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert faults == []
    # It is as good as new: it goes on, once at a time, and keeps its place.
    job.resume()
    job.reschedule(0.001)
    ran = len(calls)
    until(lambda: len(calls) > ran + 3)
    assert worst[0] <= (most if overlap == "allow" else 1)
    assert (job.state, job.failures) == (JobState.ACTIVE, 0)
    job.cancel()
    assert job.wait(SOON)
    assert job.runs == len(calls)
    until(lambda: scheduler.stats().queued == scheduler.stats().running == 0)
    tasks = [scheduler.submit_after(3600, int) for _ in range(capacity)]
    assert scheduler.stats().rejected == 0
    assert scheduler.cancel_many(tasks) == capacity


def test_a_storm_of_making_and_ending(make: Make, switching: None) -> None:
    scheduler = make(4, capacity=50)
    end = time.monotonic() + STORM_S
    faults: list[BaseException] = []
    jobs: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while time.monotonic() < end:
                job = scheduler.repeat(Every(0.001, first=0).limit(3), int)
                if rng.random() < 0.5:
                    job.cancel()
                elif rng.random() < 0.5:
                    assert job.wait(SOON)
                jobs.append(job)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert faults == []
    for job in jobs:
        assert job.wait(SOON)
        assert job.state is JobState.CANCELLED or job.runs + job.skipped == 3
    assert scheduler.jobs() == []
    until(lambda: scheduler.stats().queued == 0)
    scheduler.submit_many([int] * 50)


def test_shutdown_meets_steering(engine: str, switching: None) -> None:
    for seed in range(30):
        scheduler = Scheduler(2, engine=engine)
        job = scheduler.repeat(0.0005, int)
        faults: list[BaseException] = []

        def steer(job: Any = job, faults: Any = faults, seed: int = seed) -> None:
            rng = random.Random(seed)
            try:
                while True:
                    rng.choice(STEERS)(job)
            except (InvalidStateError, SchedulerClosed):
                pass
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=steer) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.002)
        scheduler.shutdown(wait=True)
        assert job.wait(SOON)
        for thread in threads:
            thread.join(SOON)
        assert faults == []
        assert (job.state, scheduler.jobs(), scheduler.tasks()) == (JobState.ENDED, [], [])


# -- on one thread ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs SIGALRM")
def test_a_signal_handler_steers_the_job_that_it_interrupts(make: Make) -> None:
    scheduler = make(1)
    job = scheduler.repeat(0.001, int)
    rng = random.Random(5)
    handled: list[None] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        handled.append(None)
        try:
            rng.choice(STEERS)(job)
        except RuntimeError as error:
            # The reference engine refuses what comes in the middle of its own steps.
            assert "re-entered" in str(error)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        end = time.monotonic() + STORM_S
        while time.monotonic() < end:
            rng.choice(STEERS)(job)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled
    job.resume()
    job.reschedule(0.001)
    ran = job.runs
    until(lambda: job.runs > ran + 3)


class _Trip:
    """Raises KeyboardInterrupt at the n-th instruction run in the modules of jobs."""

    FILES = ("recurring.py", "_job_runs.py", "_job_state.py", "_job_arithmetic.py")

    def __init__(self, at: int) -> None:
        self.left = at
        self.tripped = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(self.FILES):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.tripped:
            self.left -= 1
            if self.left < 0:
                self.tripped = True
                raise KeyboardInterrupt
        return self


def traced(trip: _Trip, step: Callable[[], Any]) -> None:
    gc.disable()  # no finalizer is to be met
    sys._getframe().f_trace_opcodes = True  # else CPython 3.12 begins with the second frame
    sys.settrace(trip)
    try:
        step()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
        gc.enable()


STEPS: dict[str, Callable[[Scheduler, Any], Any]] = {
    "tick": lambda scheduler, job: scheduler.tick(),
    "pause": lambda scheduler, job: job.pause(),
    "run now": lambda scheduler, job: job.run_now(),
    "reschedule": lambda scheduler, job: job.reschedule(1),
    "repeat": lambda scheduler, job: scheduler.repeat(1, int),
    "cancel": lambda scheduler, job: job.cancel(),
    "shutdown": lambda scheduler, job: scheduler.shutdown(wait=False),
}


@pytest.mark.parametrize(
    ("step", "options"),
    [
        *((step, {}) for step in STEPS),
        ("tick", {"catch_up": "skip"}),
        ("tick", {"overlap": "allow"}),
        ("pause", {"catch_up": "skip"}),
    ],
    ids=str,
)
def test_ctrl_c_at_every_instruction(
    make: Make, engine: str, step: str, options: dict[str, str]
) -> None:
    """Whatever is interrupted, the job goes on, is over, or was never made; its place is given
    back once, and nobody is left to wait."""
    at = 0
    while True:
        clock = ManualClock()
        scheduler = make(0, clock=clock, capacity=3)
        body = Starts(clock)
        job = scheduler.with_options(**options).repeat(1, body)
        clock.advance(1)
        trip = _Trip(at)
        traced(trip, lambda scheduler=scheduler, job=job: STEPS[step](scheduler, job))
        if not trip.tripped:
            break
        at += 1 if at < 20 else STRIDE
        if step == "shutdown":
            scheduler.shutdown(wait=False)
            assert job.wait(0), at
            continue
        if step == "pause" and job.state is JobState.PAUSED:
            job.resume()
        jobs = scheduler.jobs()
        assert len(jobs) <= 2
        if step == "cancel" and job.state is JobState.CANCELLED:
            assert jobs == []
        else:
            ran = len(body.at)
            run_due(scheduler)
            for _ in range(4):
                clock.advance(1)
                run_due(scheduler)
            assert len(body.at) >= ran + 4, at
            assert (job.state, job.next_due) == (JobState.ACTIVE, clock.now_ns() + S), at
        for left in jobs:
            left.cancel()
        assert scheduler.stats().queued == 0, at
        scheduler.submit_many([int] * 3)
        assert scheduler.stats().rejected == 0
    assert at > 20


def test_a_finalizer_may_steer(make: Make) -> None:
    scheduler = make(1)
    job = scheduler.repeat(0.001, int)
    refused: list[str] = []

    class Dies:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            try:
                job.run_now()
                job.pause()
                job.resume()
            except RuntimeError as error:
                refused.append(str(error))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        end = time.monotonic() + STORM_S / 2
        while time.monotonic() < end:
            Dies()
            scheduler.submit(int)
            job.pause()
            Dies()
            job.resume()
    finally:
        gc.set_threshold(*threshold)
    assert all("re-entered" in text for text in refused)
    job.resume()
    ran = job.runs
    until(lambda: job.runs > ran + 3)


def test_a_trigger_that_blocks_holds_up_nobody_else(make: Make, gate: Any) -> None:
    scheduler = make(2)
    asked: list[int] = []

    def answer(after: int) -> int:
        asked.append(after)
        if len(asked) == 2:
            gate()
        return after + S // 1000

    job = scheduler.repeat(Asked(answer), int)
    gate.wait_entered()
    assert scheduler.repeat(0.001, int).run_now().result(SOON) == 0
    job.pause()
    assert (job.state, job.next_due) == (JobState.PAUSED, None)
    assert repr(job)
    assert job.cancel()
    assert job.state is JobState.CANCELLED
    gate.release.set()
    assert job.wait(SOON)


def test_an_interrupt_of_a_trigger_is_not_its_failure(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    asked: list[int] = []

    def answer(after: int) -> int:
        asked.append(after)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return after + S

    job = scheduler.repeat(Asked(answer), int)
    clock.advance(1)
    with pytest.raises(KeyboardInterrupt):
        scheduler.tick()
    assert (job.state, job.next_due) == (JobState.ACTIVE, 2 * S)
    run_to(scheduler, clock, 3)
    assert job.runs == 3


def test_ctrl_c_ends_a_wait(make: Make) -> None:
    scheduler = make(1)
    job = scheduler.repeat(3600, int)
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
    if sys.platform == "win32":
        pytest.skip("raise_signal from a thread does not reach the main thread there")
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        job.wait()
    assert job._waiters == {}
    job.cancel()
    assert job.wait()
    with pytest.raises(WouldDeadlock):
        scheduler.submit(scheduler.repeat(1, int).wait).result(SOON)
