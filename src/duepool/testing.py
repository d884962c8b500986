"""Testing and studying without sleeping: workers whose bodies take *virtual* time.

``VirtualWorkers`` is an executor on a ``ManualClock``. A body is called when one of its workers is
free and says how long it takes; its future completes at that instant of the clock, to the
nanosecond. What is more than the workers can take waits, first come, first served. Behind a
scheduler it shows how long work queues, without a thread and without waiting::

    clock = duepool.ManualClock()
    workers = VirtualWorkers(4, clock)
    scheduler = duepool.Scheduler(0, clock=clock, executor=workers, max_in_flight=4)

How it works, and what it keeps true. One thread at a time does what there is to do (``_pump``):
whoever submits, cancels or moves the clock leaves word in a deque, and works it off if nobody else
does already; whoever does looks again after giving that up. Only that thread touches the heap of
ends and the count of free workers. No lock is held, and a body, a callback or a signal handler may
come back to it in the middle. At one instant runs end first, in the order of (end, start), then
queued ones start. Costs: O(log n) for each run that starts, goes on or ends.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from datetime import timedelta
from heapq import heapify, heappop, heappush
from types import GeneratorType
from typing import Any

from ._arguments import integer
from ._calls import Call
from ._values import MAX_NS, due_overflow, seconds_to_ns
from .clock import COMPLETIONS, ManualClock
from .errors import CancelRequested

__all__ = ["Takes", "VirtualWorkers"]

Seconds = int | float | timedelta

# More cancelled ends than this, and than half of all, and the heap is made anew without them.
_STALE = 64


class Takes:
    """What a body on virtual workers may return: it takes ``seconds``, and ``result`` is its
    result."""

    __slots__ = ("result", "seconds")

    def __init__(self, seconds: Seconds, result: Any = None) -> None:
        self.seconds = seconds
        self.result = result

    def __repr__(self) -> str:
        return f"Takes({self.seconds!r}, {self.result!r})"


class _Run(Future[Any]):
    """The future of one body, and where the body stands.

    Written by the pumping thread only, but for what ``Future`` guards itself.
    """

    def __init__(self, pool: "VirtualWorkers", call: tuple[Any, Any, Any]) -> None:
        super().__init__()
        # Its workers live as long as somebody waits for it.
        self._pool = pool
        # (fn, args, kwargs) until it is called.
        self.call: tuple[Any, Any, Any] | None = call
        # What a scheduler calls its body by.
        self.frame: Call | None = None
        self.generator: Generator[Seconds, None, Any] | None = None
        # What it ends with, once it is known.
        self.value: Any = None
        # Of its entry in the heap of ends; an entry with another number is stale.
        self.entry = -1
        self.end_ns = 0

    def cancel(self) -> bool:
        """Cancel a run that is still queued. A running generator gets ``CancelRequested`` raised
        where it stands, as in ``duepool.sleep``; that, too, is False, since it has started."""
        if super().cancel():
            self.call = None
            return True
        if self.generator is not None and not self.done():
            self._pool._ask(self)
        return False

    def rests(self, clock: Any) -> bool:
        """It will not go on before ``clock`` moves, or it waits for a worker that will not."""
        pool = self._pool
        return pool.virtual_clock is clock and not self.done() and pool.settled()

    def step(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call ``fn`` as a part of the body: where a scheduler submitted it, its task is
        ``current_task()``."""
        return fn(*args) if self.frame is None else self.frame.step(fn, args, {})


class VirtualWorkers(Executor):
    """``workers`` workers whose bodies take time on ``clock`` only.

    A body says how long it takes: it returns seconds (int, float) or a ``timedelta``, which is its
    result too; or ``Takes(seconds, result)``; or it is a generator that yields durations and
    returns its result. Anything else is a ``TypeError``, a negative duration a ``ValueError``, both
    as the body's exception; what a body raises ends it at once. ``KeyboardInterrupt`` and
    ``SystemExit`` are stored, and raised again by what called the body: ``submit``, or the move of
    the clock.

    The clock is best moved by ``Scheduler.run_for`` or ``run_until_idle``, which stop at each end.
    A plain ``advance`` over several ends completes them in order, but all at the instant that it
    leads to. Bodies are called on the submitting thread or the one that moves the clock, and never
    sleep or wait for tasks of that clock (``WouldDeadlock``).
    """

    def __init__(self, workers: int, clock: ManualClock) -> None:
        count = integer(workers, "workers", 1, "bodies that run at once")
        if type(clock) is not ManualClock:
            raise TypeError(f"clock must be a duepool.ManualClock, not {clock!r}")
        # As ThreadPoolExecutor calls it; a scheduler's default for max_in_flight goes by it.
        self._max_workers = count
        self.virtual_clock = clock
        self._closed = False
        self._queue: deque[_Run] = deque()
        self._asked: deque[_Run] = deque()
        self._free = count
        self._ends: list[tuple[int, int, _Run]] = []
        self._stale = 0
        self._entries = itertools.count()
        self._load = clock._cell.load
        # Who has put his mark here pumps; at most one.
        self._turn: dict[None, object] = {}
        clock._attach(self, COMPLETIONS)

    @property
    def busy(self) -> int:
        """How many workers run a body now."""
        return self._max_workers - self._free

    @property
    def queued(self) -> int:
        """How many bodies wait for a worker now."""
        return sum(not run.done() for run in list(self._queue))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn(*args, **kwargs)`` as soon as a worker is free; perhaps before this returns."""
        if not callable(fn):
            raise TypeError(f"fn must be callable, not {type(fn).__name__} {fn!r}")
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        run = _Run(self, (fn, args, kwargs))
        self._queue.append(run)
        self._pump()
        return run

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse new bodies, cancel the queued ones if asked to. Never waits, whatever ``wait``
        says: what runs ends when the clock gets there."""
        self._closed = True
        if cancel_futures:
            for run in list(self._queue):
                run.cancel()

    def next_ns(self) -> int | None:
        """The next instant at which a body ends or goes on, in nanoseconds; None if none runs."""
        try:
            return self._ends[0][0]
        except IndexError:
            return None

    def settled(self) -> bool:
        """True when nothing is left to do before the clock moves."""
        return not self._turn and not self._work_left()

    def wake(self) -> None:
        """The clock has moved: end what is over, start what was queued."""
        self._pump()

    def __repr__(self) -> str:
        return f"<VirtualWorkers {self.busy} of {self._max_workers} busy, {self.queued} queued>"

    # -- the pump ------------------------------------------------------------------------------

    def _ask(self, run: _Run) -> None:
        self._asked.append(run)
        self._pump()

    def _work_left(self) -> bool:
        if self._asked or (self._queue and self._free):
            return True
        try:
            return bool(self._ends[0][0] <= self._load())
        except IndexError:
            return False

    def _pump(self) -> None:
        """Do what there is to do, unless somebody is at it. Raises the first interrupt of a body
        when all is done."""
        cut: BaseException | None = None
        me = threading.get_ident()
        mark = object()
        movers = self.virtual_clock._movers
        while self._work_left():
            try:
                if self._turn.setdefault(None, mark) is not mark:
                    break  # whoever has it looks again
                movers.setdefault(me, mark)
                while self._work_left():
                    self._do_one()
            except BaseException as error:
                cut = error if cut is None else cut
            finally:
                if movers.get(me) is mark:
                    del movers[me]
                if self._turn.get(None) is mark:
                    del self._turn[None]
        try:
            if cut is not None:
                raise cut
        finally:
            del cut

    def _do_one(self) -> None:
        now_ns = self._load()
        ends = self._ends
        if self._asked:
            run = self._asked.popleft()
            if run.generator is not None and not run.done():
                self._forget_end(run)
                self._go_on(run, now_ns, CancelRequested("the task was asked to stop"))
        elif ends and ends[0][0] <= now_ns:
            _, entry, run = heappop(ends)
            if entry != run.entry:
                self._stale -= 1
            elif run.generator is not None:
                self._go_on(run, now_ns)
            else:
                self._finish(run, None)
        else:
            run = self._queue.popleft()
            if run.set_running_or_notify_cancel():
                self._free -= 1
                self._start(run, now_ns)
        while ends and ends[0][1] != ends[0][2].entry:
            heappop(ends)
            self._stale -= 1

    def _start(self, run: _Run, now_ns: int) -> None:
        assert run.call is not None
        fn, args, kwargs = run.call
        run.call = None
        frame = fn if type(fn) is Call else None
        try:
            value = fn(*args, **kwargs)
        except BaseException as error:
            self._finish(run, error)
            return
        finally:
            del fn, args, kwargs
        if type(value) is GeneratorType:
            run.generator = value
            run.frame = frame
            self._go_on(run, now_ns)
        elif type(value) is Takes:
            run.value = value.result
            self._lasts(run, now_ns, value.seconds)
        else:
            run.value = value
            self._lasts(run, now_ns, value)

    def _go_on(self, run: _Run, now_ns: int, error: BaseException | None = None) -> None:
        """Let a generator run up to its next duration."""
        generator = run.generator
        assert generator is not None
        try:
            if error is None:
                seconds = run.step(next, generator)
            else:
                seconds = run.step(generator.throw, error)
        except StopIteration as end:
            run.value = end.value
            self._finish(run, None)
        except BaseException as raised:
            self._finish(run, raised)
        else:
            self._lasts(run, now_ns, seconds)

    def _lasts(self, run: _Run, now_ns: int, seconds: Any) -> None:
        try:
            run.end_ns = now_ns + _duration_ns(seconds)
            if run.end_ns > MAX_NS:
                raise due_overflow("the duration of a body", seconds, now_ns)
        except Exception as error:
            self._finish(run, error)
            return
        run.entry = next(self._entries)
        heappush(self._ends, (run.end_ns, run.entry, run))

    def _forget_end(self, run: _Run) -> None:
        """The entry of ``run`` in the heap is stale from now on."""
        run.entry = -1
        self._stale += 1
        if self._stale > _STALE and 2 * self._stale > len(self._ends):
            self._ends[:] = [end for end in self._ends if end[1] == end[2].entry]
            heapify(self._ends)
            self._stale = 0

    def _finish(self, run: _Run, error: BaseException | None) -> None:
        """The run is over: free its worker, then tell."""
        self._free += 1
        value, run.value = run.value, None
        generator, run.generator = run.generator, None
        run.frame = None
        if generator is not None and error is not None:
            generator.close()
        try:
            if error is None:
                run.set_result(value)
            else:
                run.set_exception(error)
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise error
        finally:
            del error, generator  # its traceback holds this frame


def _duration_ns(seconds: Any) -> int:
    try:
        return seconds_to_ns(seconds, "the duration of a body")
    except TypeError as error:
        raise TypeError(
            f"{error}; a body on virtual workers returns how long it takes, or Takes(seconds, "
            "result), or is a generator that yields durations"
        ) from None
