"""What is compared: the two engines of duepool, and what the standard library has for the same job.

Each side offers the same few steps. A step does a whole loop, written against that side's own
calls, so that what is timed is the side and not a wrapper around it. Every loop keeps a handle only
where a program would need it.
"""

import asyncio
import heapq
import itertools
import sched
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

from settings import ENGINES

import duepool

PAIR_DELAY_S = 60.0
"""The time-out that is scheduled and cancelled at once."""


def noop() -> None:
    """The body of every task."""


def start_threads(submit: Callable[..., Any], count: int) -> None:
    """Have a pool start all its ``count`` threads, and let them come to rest."""
    if count:
        together = threading.Barrier(count + 1)
        for _ in range(count):
            submit(together.wait)
        together.wait()
        time.sleep(0.01)


class Duepool:
    """A scheduler on one engine. ``workers=0`` is manual mode: no thread at all."""

    def __init__(self, engine: str, workers: int = 1) -> None:
        self.scheduler = duepool.Scheduler(workers, capacity=None, engine=engine)
        start_threads(self.scheduler.submit, workers)

    def schedule(self, delays: list[float]) -> list[Any]:
        submit_after = self.scheduler.submit_after
        return [submit_after(delay, noop) for delay in delays]

    def schedule_many(self, count: int, delay: float) -> list[Any]:
        return self.scheduler.submit_many([noop] * count, delay)

    def cancel(self, tasks: list[Any]) -> None:
        for task in tasks:
            task.cancel()

    def pairs(self, count: int) -> None:
        submit_after = self.scheduler.submit_after
        for _ in repeat(None, count):
            submit_after(PAIR_DELAY_S, noop).cancel()

    def flood(self, count: int) -> None:
        _flood(self.scheduler.submit, count)

    def flood_and_forget(self, count: int) -> None:
        _flood_and_forget(self.scheduler.submit, count)

    def round_trips(self, count: int) -> None:
        _round_trips(self.scheduler.submit, count)

    def pending(self) -> int:
        return self.scheduler.stats().queued

    def close(self) -> None:
        self.scheduler.shutdown(cancel_futures=True)


class Pool:
    """``ThreadPoolExecutor``, all of its threads started and idle before the first submission."""

    def __init__(self, workers: int = 1) -> None:
        self.executor = ThreadPoolExecutor(workers)
        start_threads(self.executor.submit, workers)

    def flood(self, count: int) -> None:
        _flood(self.executor.submit, count)

    def flood_and_forget(self, count: int) -> None:
        _flood_and_forget(self.executor.submit, count)

    def round_trips(self, count: int) -> None:
        _round_trips(self.executor.submit, count)

    def close(self) -> None:
        self.executor.shutdown()


def _flood(submit: Callable[..., Any], count: int) -> None:
    """Submit ``count`` bodies, keep their handles, and wait for the last one. Bodies start in the
    order of submission: when the last has ended, at most one for each other worker has not."""
    handles = [submit(noop) for _ in repeat(None, count)]
    handles[-1].result()


def _flood_and_forget(submit: Callable[..., Any], count: int) -> None:
    """The same without keeping the handles."""
    for _ in repeat(None, count - 1):
        submit(noop)
    submit(noop).result()


def _round_trips(submit: Callable[..., Any], count: int) -> None:
    for _ in repeat(None, count):
        submit(noop).result()


class Sched:
    """``sched.scheduler``, which has no threads and runs in its caller."""

    def __init__(self) -> None:
        self.scheduler = sched.scheduler(time.monotonic, time.sleep)

    def schedule(self, delays: list[float]) -> list[Any]:
        enter = self.scheduler.enter
        return [enter(delay, 0, noop) for delay in delays]

    def cancel(self, events: list[Any]) -> None:
        cancel = self.scheduler.cancel
        for event in events:
            cancel(event)

    def pairs(self, count: int) -> None:
        enter, cancel = self.scheduler.enter, self.scheduler.cancel
        for _ in repeat(None, count):
            cancel(enter(PAIR_DELAY_S, 0, noop))

    def pending(self) -> int:
        return len(self.scheduler.queue)

    def close(self) -> None:
        pass


class Asyncio:
    """``loop.call_later`` on the thread of the loop, which is where it may be called.

    A cancelled timer stays in the loop's heap until more than half of them are cancelled; the next
    pass of the loop then sweeps. That pass is part of what is timed.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def schedule(self, delays: list[float]) -> list[Any]:
        call_later = self.loop.call_later
        return [call_later(delay, noop) for delay in delays]

    def cancel(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.cancel()
        self._one_pass()

    def pairs(self, count: int) -> None:
        call_later = self.loop.call_later
        for _ in repeat(None, count):
            call_later(PAIR_DELAY_S, noop).cancel()
        self._one_pass()

    def _one_pass(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        self.loop.close()


class TimerLoop:
    """What a program writes by hand: ``heapq`` under a ``Condition``, and one thread.

    Entries and cancelling are the recipe of the documentation of ``heapq``: a cancelled entry is
    marked, and stays in the heap until it would have been due. The lock is taken directly, not
    through the condition, which costs less.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[list[Any]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def call_after(self, delay: float, body: Callable[[], Any]) -> list[Any]:
        entry = [time.monotonic() + delay, next(self._numbers), body]
        with self._lock:
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()
        return entry

    def call_many_after(self, delay: float, bodies: list[Callable[[], Any]]) -> list[list[Any]]:
        due, numbers = time.monotonic() + delay, self._numbers
        entries = [[due, next(numbers), body] for body in bodies]
        with self._lock:
            self._heap += entries
            heapq.heapify(self._heap)
            self._changed.notify()
        return entries

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._closed:
                    rest = self._heap[0][0] - time.monotonic() if self._heap else None
                    if rest is not None and rest <= 0:
                        break
                    self._changed.wait(rest)
                if self._closed:
                    return
                body = heapq.heappop(self._heap)[2]
            if body is not None:
                body()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
        self._thread.join()


class HeapCondition:
    """The ``TimerLoop`` above."""

    def __init__(self) -> None:
        self.timers = TimerLoop()

    def schedule(self, delays: list[float]) -> list[Any]:
        call_after = self.timers.call_after
        return [call_after(delay, noop) for delay in delays]

    def schedule_many(self, count: int, delay: float) -> list[Any]:
        return self.timers.call_many_after(delay, [noop] * count)

    def cancel(self, entries: list[Any]) -> None:
        for entry in entries:
            entry[2] = None

    def close(self) -> None:
        self.timers.close()


PEERS: dict[str, Callable[[], Any]] = {
    "sched": Sched,
    "asyncio": Asyncio,
    "heapq + Condition": HeapCondition,
}


def open_side(name: str, workers: int = 1) -> Any:
    """The side called ``name`` in the tables; ``workers`` for those that have a number of them."""
    if name in ENGINES:
        return Duepool(ENGINES[name], workers)
    if name == "ThreadPoolExecutor":
        return Pool(workers)
    return PEERS[name]()
