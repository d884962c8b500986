"""Moving a manual clock from deadline to deadline: ``run_for`` and ``run_until_idle``.

Who takes part is whatever is attached to the clock: every scheduler that goes by it, and virtual
workers. A *deadline* is the due time of a queued task, the end of a ``duepool.sleep``, or that of a
body on virtual workers; the time limits of running bodies are tasks of a scheduler of their own.

Guarantees:

- The clock stands at each deadline in turn, and moves on only when nothing is left to do there:
  schedulers in manual mode are ticked, in the order in which they were made, until they have
  nothing due; of those with threads every body has ended or is at rest (see ``_rest``).
- At one instant virtual workers end their bodies first, then time limits of running bodies strike,
  and then new bodies are started.
- One thread moves a clock at a time, and never from inside a body of that clock.
- The whole takes no more than ``timeout`` real seconds, but for a body that does not return on the
  calling thread.

Costs: a step takes a look at each participant, O(log n) in each; where threads take part it also
looks at each body that is at rest, never at what is queued.
"""

import threading
import time
from typing import Any

from . import _rest
from ._current import current_task
from ._values import MANUAL, MAX_NS, clock_kind, due_overflow, seconds_to_ns, timeout_s
from .clock import ManualClock

TIMEOUT_S = 60.0
"""Real seconds after which a run over virtual time is taken for stuck."""

# Looks at once before the first real pause, and the longest pause between two looks.
_EAGER_LOOKS = 30
_LONGEST_PAUSE_S = 0.002

_NAMED = 10  # tasks that a message names at most


def run_for(engine: Any, seconds: Any, timeout: Any = TIMEOUT_S) -> int:
    """Move the clock of ``engine`` on by ``seconds``; how many of its tasks started."""
    span_ns = seconds_to_ns(seconds, "seconds")
    move = Move(engine, timeout)
    now_ns = engine.now_ns()
    if now_ns + span_ns > MAX_NS:
        raise due_overflow("seconds", seconds, now_ns)
    return move.run(now_ns + span_ns, stop_when_idle=False)


def run_until_idle(engine: Any, until: Any = None, timeout: Any = TIMEOUT_S) -> int:
    """Move the clock of ``engine`` on to the last deadline there is, at most by ``until`` seconds;
    how many of its tasks started."""
    span_ns = MAX_NS if until is None else seconds_to_ns(until, "until")
    move = Move(engine, timeout)
    return move.run(min(engine.now_ns() + span_ns, MAX_NS), stop_when_idle=True)


class Move:
    """One run over virtual time."""

    def __init__(self, engine: Any, timeout: Any) -> None:
        self._limit_s = timeout_s(timeout)
        if clock_kind(engine.clock) != MANUAL:
            raise TypeError(
                f"virtual time needs a scheduler with clock=duepool.ManualClock(), not "
                f"{engine.clock!r}: no other clock can be moved"
            )
        self._engine = engine
        self._clock: ManualClock = engine.clock
        self._end_s = float("inf")
        # No other thread was seen to run bodies of schedulers in manual mode.
        self._alone = False
        self._bounded = True

    def run(self, last_ns: int, stop_when_idle: bool) -> int:
        """Step to ``last_ns``, or to the last deadline up to it; how many tasks started."""
        clock = self._clock
        self._refuse_inside()
        me = threading.get_ident()
        try:
            if clock._run.setdefault(None, self) is not self:
                raise RuntimeError(
                    "the clock is moved from deadline to deadline already, by another thread; "
                    "one run at a time"
                )
            clock._movers[me] = self
            if self._limit_s is not None:
                self._end_s = time.monotonic() + self._limit_s
            before = _started(self._engine)
            # Somebody may have moved it and have been cut short before everybody was woken.
            clock._moved()
            self._bounded = last_ns < MAX_NS
            self._steps(last_ns, stop_when_idle)
            return _started(self._engine) - before
        finally:
            if clock._movers.get(me) is self:
                del clock._movers[me]
            if clock._run.get(None) is self:
                del clock._run[None]

    def _refuse_inside(self) -> None:
        task = current_task()
        inside = task is not None and task._engine.clock is self._clock
        engines = _rest.engines_of(self._clock._attached())
        if inside or any(engine.runs_here() for engine in engines):
            raise RuntimeError(
                "a body of a scheduler on this clock cannot run the clock on: it is itself what "
                "has to end first; submit_after() what is to come, or duepool.sleep() on a worker"
            )
        if _rest.is_mover(self._clock):
            raise RuntimeError(
                "this thread moves the clock already, and calls this from what that brought"
            )

    def _steps(self, last_ns: int, stop_when_idle: bool) -> None:
        clock = self._clock
        while True:
            attached = self._settle()
            now_ns = clock.now_ns()
            next_ns = _next_ns(attached, now_ns)
            if next_ns is None or next_ns > last_ns:
                if stop_when_idle:
                    return
                next_ns = last_ns
            if next_ns <= now_ns:  # the end; a body may have moved the clock beyond it
                return
            self.check_limit()
            clock._cell.raise_to(next_ns)
            clock._moved(attached)

    def _settle(self) -> list[Any]:
        """Return once nothing is left to do at this instant: what is attached to the clock then."""
        clock = self._clock
        looks = 0
        while True:
            attached = clock._attached()
            engines = _rest.engines_of(attached)
            if self._tick(engines):
                looks = 0
            elif self._alone and all(_passive(engine, clock) for engine in engines):
                return attached
            # A body may have made a scheduler since, and rest now.
            elif _rest.resting(engines, clock.now_ns()) and attached == clock._attached():
                self._alone = True
                return attached
            else:
                looks += 1
                pause_s = max(0.0, (looks - _EAGER_LOOKS) * 1e-5)
                time.sleep(min(pause_s, _LONGEST_PAUSE_S))
            self.check_limit()

    def _tick(self, engines: list[Any]) -> int:
        """Tick every scheduler in manual mode that has something due; how many bodies started."""
        started = 0
        for engine in engines:
            if engine.max_workers:
                continue
            due_ns = engine.next_due_ns()
            if due_ns is not None and due_ns <= self._clock.now_ns():
                try:
                    started += engine.tick()
                except RuntimeError:
                    # Another thread ticks it; what it runs is waited for as on a worker.
                    if engine.handle.forked:
                        raise
                    self._alone = False
        return started

    def check_limit(self) -> None:
        """``TimeoutError`` once the run has taken too long."""
        if time.monotonic() <= self._end_s:
            return
        now_ns = self._clock.now_ns()
        engines = _rest.engines_of(self._clock._attached())
        tasks = _rest.restless(engines, now_ns)
        shown = ", ".join(map(_named, tasks[:_NAMED]))
        if len(tasks) > _NAMED:
            shown += f" and {len(tasks) - _NAMED} more"
        told = sum(engine.counts().telling for engine in engines)
        reasons = [
            f"neither ended nor at rest: {shown}" if shown else "",
            f"callbacks of {told} tasks that have ended still run" if told else "",
        ]
        if not any(reasons):
            reasons = ["there was always more to run"]
        if not self._bounded:
            reasons.append("until= bounds how far the clock moves on")
        raise TimeoutError(
            f"not through within {self._limit_s:g} real seconds, at {now_ns} ns of the clock: "
            + "; ".join(filter(None, reasons))
        )


def _named(task: Any) -> str:
    return f"{task!r} of {task._engine.config.crew.prefix}"


def _next_ns(attached: list[Any], now_ns: int) -> int | None:
    """The next deadline after ``now_ns``. What is due and has not started waits for a worker, and
    so for somebody else's deadline."""
    found: int | None = None
    for one in attached:
        handle = getattr(one, "handle", None)
        if handle is None:
            next_of = getattr(one, "next_ns", None)
            nexts = [] if next_of is None else [next_of()]
        elif handle.forked or (engine := handle.engine()) is None:
            continue
        else:
            nexts = [engine.next_due_ns()]
            if one.rests:
                nexts += [rest.end_ns for rest in list(one.rests)]
        for next_ns in nexts:
            if next_ns is not None and next_ns > now_ns and (found is None or next_ns < found):
                found = next_ns
    return found


def _passive(engine: Any, clock: Any) -> bool:
    """Nothing of ``engine`` goes on by itself: it has no threads of its own, nor of others."""
    if engine.max_workers:
        return False
    hand = engine.config.hand
    return hand is None or getattr(hand.executor, "virtual_clock", None) is clock


def _started(engine: Any) -> int:
    """How many tasks of ``engine`` have ever started: each start has its lateness counted."""
    return sum(engine.counts().lateness_buckets)


def next_due_ns(engine: Any) -> int | None:
    """The earliest due time of a queued task or end of a sleep; None when there is neither."""
    due_ns: int | None = engine.next_due_ns()
    ends = [rest.end_ns for rest in list(engine.config.crew.rests) if rest.end_ns is not None]
    return min(ends if due_ns is None else [due_ns, *ends], default=None)
