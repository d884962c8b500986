"""A task that was claimed ends, whatever is raised between its claim and its end."""

import logging
import sys
import threading
import time

import pytest

import duepool
from duepool import TaskState

from .support import SOON, child, posix_signals


class NoTraceback(Exception):
    @property
    def __traceback__(self):
        raise ValueError("no traceback for you")


class NoClass(Exception):
    @property
    def __class__(self):
        raise ValueError("no class for you")


@pytest.mark.parametrize("kind", [NoTraceback, NoClass])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_with_ideas_of_its_own(make, gate, kind, workers):
    scheduler = make(workers)

    def fail(wait=False):
        if wait:
            gate()
        raise kind

    task = scheduler.submit(fail)
    if not workers:
        assert scheduler.tick() == 1
    with pytest.raises(BaseException):  # noqa: B017 - with the attribute that raises, who knows what
        task.result(SOON)
    assert task.state == TaskState.FAILED
    if workers:
        asked = scheduler.submit(fail, True)
        gate.wait_entered()
        assert asked.cancel()
        gate.release.set()
        with pytest.raises(duepool.CancelledError):
            asked.result(SOON)
        assert scheduler.submit(int).result(SOON) == 0
    assert type(task._failure.exception) is kind
    stats = scheduler.stats()
    assert (stats.running, stats.cancel_requested) == (0, 0)


def test_a_tick_close_to_the_recursion_limit(engine):
    out = child(
        engine,
        """
        import inspect
        scheduler = Scheduler(0, clock=ManualClock())

        def fail():
            raise ValueError

        def deep(n):
            return scheduler.tick() if n == 0 else deep(n - 1)

        refused = 0
        for body in (int, fail):
            for short_of in range(120):
                task = scheduler.submit(body)
                told = []
                task.add_done_callback(told.append)
                try:
                    deep(sys.getrecursionlimit() - len(inspect.stack()) - short_of)
                except RecursionError:
                    refused += 1
                assert not task.running(), (short_of, task)
                if not task.done():
                    assert scheduler.tick() == 1
                assert task.done(), (short_of, task)
                if task._failure is not None:
                    task._failure.look()
        assert refused
        assert scheduler.stats().running == 0
        """,
    )
    assert out == ""


@posix_signals
@pytest.mark.parametrize("shared", [False, True])
def test_a_storm_of_interrupts_on_failing_bodies_in_tick(engine, shared):
    out = child(
        engine,
        f"""
        scheduler = Scheduler(0, history=0)
        campaign = Campaign(longest_s=40e-6)

        def fail():
            raise ValueError

        while campaign.goes_on():
            tasks = [scheduler.submit(fail) for _ in range(5)]
            if {shared}:
                for task in tasks:
                    task._condition
            campaign.round(scheduler.tick)
            scheduler.tick()
            assert not scheduler.stats().running, (campaign.rounds, tasks)
            assert all(task.done() for task in tasks), (campaign.rounds, tasks)
        assert campaign.hits, campaign.rounds
        """,
    )
    assert out == ""


class HostileClock:
    """Real time, but the reading with one number raises something."""

    def __init__(self, error, only_on_workers=False):
        self.readings = 0
        self.raise_at = None
        self._error = error
        self._only_on_workers = only_on_workers

    def now_ns(self):
        if self._only_on_workers and threading.current_thread() is threading.main_thread():
            return time.monotonic_ns()
        self.readings += 1
        if self.readings == self.raise_at:
            raise self._error
        return time.monotonic_ns()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_worker_outlives_what_a_clock_raises(make, error):
    clock = HostileClock(error, only_on_workers=True)
    scheduler = make(1, clock=clock)
    assert scheduler.submit(int).result(SOON) == 0
    for ahead in range(1, 5):
        clock.raise_at = clock.readings + ahead
        assert scheduler.submit(int).result(SOON) == 0
    assert scheduler.submit(int).result(SOON) == 0
    assert scheduler._engine.counts().live_workers == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_tick_whose_clock_raises_leaves_nothing_running(make, fails):
    clock = HostileClock(KeyboardInterrupt)
    scheduler = make(0, clock=clock)
    ahead = 0
    while True:
        ahead += 1
        task = scheduler.submit(int, "x" if fails else 0)
        clock.raise_at = clock.readings + ahead
        try:
            scheduler.tick()
        except KeyboardInterrupt:
            pass
        reached = clock.readings >= clock.raise_at
        clock.raise_at = None
        assert not task.running()
        scheduler.tick()
        assert task.done()
        if task._failure is not None:
            task._failure.look()
        if not reached:
            break
    assert ahead > 2


@pytest.fixture
def quarrelsome_logging():
    """A filter of the package's logger that raises."""

    def refuse(record):
        raise ValueError("no record for you")

    logger = logging.getLogger("duepool")
    logger.addFilter(refuse)
    yield
    logger.removeFilter(refuse)


def test_a_worker_outlives_a_logging_filter_that_raises(make, gate, quarrelsome_logging):
    scheduler = make(1)
    told = []
    task = scheduler.submit(gate)
    task.add_done_callback(lambda task: 1 / 0)
    task.add_done_callback(told.append)
    gate.release.set()
    task.result(SOON)
    assert scheduler.submit(int).result(SOON) == 0
    assert told == [task]
    assert scheduler._engine.counts().live_workers == 1


def test_a_failing_initializer_under_such_a_filter(make, new_gate, quarrelsome_logging):
    gate = new_gate()

    def fail():
        gate()
        raise KeyError

    scheduler = make(1, initializer=fail)
    task = scheduler.submit(int)
    gate.release.set()
    with pytest.raises(duepool.BrokenScheduler):
        task.result(SOON)
    assert scheduler.shutdown(timeout=SOON).complete
    assert scheduler._engine.counts().live_workers == 0


def test_no_memory_at_any_one_allocation_of_a_tick_or_a_cancel(engine):
    pytest.importorskip("_testcapi", reason="this interpreter cannot be told to lack memory")
    if engine == "python" and sys.version_info >= (3, 13):
        pytest.skip("CPython 3.13 itself crashes in plain Python code when memory is short")
    out = child(
        engine,
        """
        import _testcapi
        from collections import deque
        scheduler = Scheduler(0, clock=ManualClock())

        def fail():
            raise ValueError

        calls = {"tick": lambda task: scheduler.tick(), "cancel": lambda task: task.cancel()}
        failures = 0
        for body in (int, fail):
            for name, call in calls.items():
                for nth in range(1, 120):
                    task = scheduler.submit(body)
                    told = deque()  # its append allocates nothing
                    task.add_done_callback(told.append)
                    _testcapi.set_nomemory(nth, nth + 1)
                    try:
                        call(task)
                    except MemoryError:
                        failures += 1
                    finally:
                        _testcapi.remove_mem_hooks()
                    assert not task.running(), (name, nth, task)
                    if not task.done():
                        assert scheduler.tick() == 1
                    assert task.done(), (name, nth, task)
                    assert list(told) == [task], (name, nth, task)
                    if task._failure is not None:
                        failures += isinstance(task._failure.look(), MemoryError)
        assert failures
        assert scheduler.stats().running == 0
        """,
    )
    assert out == ""
