"""How a scheduler is closed and its end waited for."""

import contextlib
import logging
from typing import Any, cast

from ._crew import Crew
from ._drain import DrainReport, report_since
from ._values import MAX_NS
from .errors import WouldDeadlock

logger = logging.getLogger("duepool")

# A wait in shutdown that only tasks not yet due hold up says so after this long.
EXPLAIN_AFTER_S = 5.0


class Closing:
    """Closes one engine, waits for its workers and reports. Every step may be taken again."""

    def __init__(self, engine: Any, crew: Crew) -> None:
        self._engine = engine
        self._crew = crew
        self._before: Any = None

    def close(self, mode: int) -> list[Any]:
        """Refuse new work, end all jobs, cancel what ``mode`` says; returns what was cancelled."""
        core = self._engine
        if self._before is None and not core.handle.forked:
            self._before = core.counts()
        # The limit in force, not the mode asked for: what an earlier call was kept from cancelling
        # is cancelled now, since it will never be claimed.
        limit = core.close(mode)
        core.config.face.book.close()
        cancelled: list[Any] = []
        if limit != MAX_NS:
            cancelled = core.cancel_queued(None if limit < 0 else limit)
        core.cancel_runs()
        return cancelled

    def report(self) -> DrainReport:
        """What happened since the first ``close``."""
        return report_since(self._engine, self._before)

    def await_end(self, limit_s: float | None) -> bool:
        """Wait for the workers as a shutdown does; in manual mode run what is due."""
        core = self._engine
        if core.max_workers == 0:
            if not core.runs_here():
                # While another thread ticks there is nothing to be done here.
                with contextlib.suppress(RuntimeError):
                    while core.tick():
                        pass
            return cast(bool, core.is_quiet())
        self._crew.give_up_hires(core.unhire)
        hand = core.config.hand
        # Whether it is a worker that would wait for itself: bodies elsewhere hold none up.
        inside = core.runs_here() and (hand is None or hand.claims_here())
        mine = [] if hand is None else hand.enter_inside(self._crew.latch)
        if inside:
            core.enter_inside(limit_s is None)
        try:
            return self._await_workers(inside, bool(mine), limit_s)
        finally:
            if inside:
                core.leave_inside(limit_s is None)
            if hand is not None:
                hand.leave_inside(mine)

    def await_termination(self, limit_s: float | None) -> bool:
        """Wait until the engine is closed, every task has ended and every worker is gone."""
        core = self._engine
        hand = core.config.hand
        if core.runs_here() or (hand is not None and hand.here.tasks):
            raise RuntimeError("await_termination() on a worker of the scheduler would never end")
        if core.handle.forked:
            core.counts()  # says so
        self._refuse_stuck(limit_s)
        self._crew.give_up_hires(core.unhire)
        if not self._crew.latch.wait(core.is_quiet, limit_s):
            return False
        self._crew.join()
        return True

    def _await_workers(self, inside: bool, in_body: bool, limit_s: float | None) -> bool:
        core, latch = self._engine, self._crew.latch
        hand = core.config.hand

        def ended() -> bool:
            counts = core.counts()
            waiting = counts.inside_waiting if inside else 0
            if hand is None:
                return bool(counts.live_workers <= waiting)
            # What an injected executor runs may outlast the thread that handed it over.
            return bool(hand.ended(counts, waiting))

        self._refuse_stuck(limit_s)
        first = EXPLAIN_AFTER_S if limit_s is None else min(EXPLAIN_AFTER_S, limit_s)
        done = latch.wait(ended, first)
        if not done and (limit_s is None or limit_s > first):
            self._explain_wait()
            done = latch.wait(ended, None if limit_s is None else limit_s - first)
        if done and not (inside or in_body):
            self._crew.join()
        return done

    def _refuse_stuck(self, limit_s: float | None) -> None:
        """``WouldDeadlock`` on the thread of the event loop that is to run what is waited for."""
        core = self._engine
        hand = core.config.hand
        if limit_s is not None or hand is None or not hand.stuck_here():
            return
        counts = core.counts()
        if counts.queued + counts.running + counts.cancel_requested:
            raise WouldDeadlock(
                "this wait could never end: it would keep the event loop from running the bodies "
                "that it waits for; give a time-out, or wait on another thread, as in "
                "await asyncio.to_thread(scheduler.shutdown)"
            )

    def _explain_wait(self) -> None:
        core = self._engine
        counts, due = core.counts(), core.next_due_ns()
        if due is not None and not counts.running + counts.cancel_requested:
            rest = (due - core.now_ns()) / 1e9
            if rest > 0:
                logger.warning(
                    "%s: shutdown waits for %d tasks that are not yet due, the next in %.6g s; "
                    'delayed="cancel" would cancel them',
                    self._crew.prefix,
                    counts.queued,
                    rest,
                )
