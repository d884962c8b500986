"""The run loop of a worker, ``tick()``, and the running of one body, here or elsewhere.

Guarantees:

- A claimed task is run and ended by its claimer, whatever is raised where: an exception that comes
  from outside between claim and body counts as the body's. With an injected executor the claimer
  hands the body over, once, and from then on ``conclude`` ends the task.
- A run ends once: where two would end it the first one decides, the other does nothing.
- What a body raises is stored and stops nothing (``tick()`` raises KeyboardInterrupt and SystemExit
  again, once the task has ended).
- Between two bodies nothing of the last one is referenced from here: no body, argument, result,
  exception, traceback or context.
- A parked worker holds its spot and the handle, not the engine.
- Whoever waits for room is told of a place as soon as it is free, before the body runs that left
  it; whatever that raises stops nothing.
- In a process that a body has forked nothing goes on: no lock is taken, nothing claimed or told.
"""

import sys
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import Any, cast

from duepool import _refusals
from duepool._outcome import Failure
from duepool._values import COUNTED, DEADLOCK, FREE, MANUAL, MAX_NS, USER, EngineConfig
from duepool.errors import CancelRequested

from . import frames
from .clock import monotonic_ns
from .ending import Ending, is_a
from .ends import Ends
from .frames import ELSEWHERE, Frame
from .handle import complain, longest_wait_s
from .monitor import NEVER, ROOM, Spot, room, through
from .record import SUCCEEDED, Record
from .steps import Claim

# By way of the base class: an exception class may have its own idea of the attribute.
_traceback = vars(BaseException)["__traceback__"]

_BACK_OFF_NS = 1_000_000  # a clock that stands still is read again after this, doubled each time,
_LONGEST_BACK_OFF_NS = 100_000_000  # up to this


def _traceback_of(error: BaseException) -> TracebackType | None:
    return cast("TracebackType | None", _traceback.__get__(error))


class Runs(Ends):
    """The part of an engine that runs tasks. ``max_workers`` is constant; the rest is guarded by
    the monitor."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.max_workers = config.max_workers
        self._ticker: Frame | None = None  # the frame of the tick() going on
        self._drop_wanted = False  # the face died under the monitor, see Engine.drop

    def _close_dropped(self) -> None:
        """Close as a dropped scheduler is closed."""
        raise NotImplementedError

    def _mark(self) -> int:
        """The depth of the other engine kind's stack on this thread."""
        raise NotImplementedError

    def prepare(self, index: int, prepare: Callable[[], object]) -> None:
        """Call ``prepare()``, the initializer, on a worker that has not begun yet; whatever it
        raises stops nothing."""
        stack = frames.stack()
        depth = len(stack)
        try:
            stack.append(Frame(self, index, self._mark()))
            prepare()
        except BaseException as error:
            complain(error, "preparing worker %d failed", index)
        finally:
            del stack[depth:]

    def serve(self, index: int, spot: Spot) -> float | None:
        """Run what is due (or hand it over) until nothing is, then register ``spot`` as parked.

        Returns how long to wait at its gate in seconds (-1: without limit), None to leave.
        """
        hand = self.config.hand
        stack = frames.stack()
        depth = len(stack)
        frame = Frame(self, index, self._mark())
        kept = None
        try:
            stack.append(frame)
            while not self.handle.forked:
                if self._drop_wanted:
                    self._close_dropped()
                if hand is not None:
                    hand.ready(True)  # waits until one more body may be under way
                wakes = self.monitor.wakes  # before the clock
                now = self._reader.lenient(on_worker=True)
                claim = Claim()
                try:
                    with self.monitor.lock():
                        through(self.claim, claim, now, index, MAX_NS)
                        if claim.record is None:
                            if self.admission.closed and not self.heap:
                                kept = self.handle.strike_off()
                                return None
                            if wakes == self.monitor.wakes and not self._drop_wanted:
                                due = self.head_due_ns()
                                leads = self.monitor.park(spot, due)
                                return self._wait_s(spot, now, due) if leads else -1.0
                    if claim.record is not None:
                        spot.spent = False
                        spot.floor_ns = 0
                        self.tell_room()
                        self._serve_one(claim, frame)
                except BaseException as cut:
                    self._blame(claim, frame, cut)
                    raise
                finally:
                    if hand is not None and claim.record is None:
                        self._unready()
                del claim
            return None
        finally:
            del stack[depth:]
            del kept  # outside the monitor

    def _wait_s(self, spot: Spot, now_ns: int, due_ns: int) -> float:
        """How long a leader waits. The clocks it may read here are not the user's."""
        if due_ns == NEVER or self._reader.kind == MANUAL:
            return -1.0
        wait_ns = due_ns - now_ns
        if self._reader.kind == USER:
            # A clock that is honest about time passes at least half of what was waited. One that
            # stands still or crawls is asked less and less often.
            passed_ns = now_ns - spot.before_ns
            if spot.spent and (passed_ns == 0 or 2 * passed_ns < spot.waited_ns):
                spot.floor_ns = min(max(_BACK_OFF_NS, 2 * spot.floor_ns), _LONGEST_BACK_OFF_NS)
            else:
                spot.floor_ns = 0
            wait_ns = max(wait_ns, spot.floor_ns)
            spot.before_ns = now_ns
            spot.waited_ns = wait_ns
        else:
            wait_ns = max(0, due_ns - monotonic_ns())
        return min(wait_ns / 1e9, longest_wait_s())

    def tick(self) -> int:
        """Run on this thread what is due, up to the last id at entry; how many ran."""
        self.handle.refuse_fork()
        if self.max_workers:
            raise _refusals.tick_with_workers(self.max_workers)
        hand = self.config.hand
        room((2 if hand is None else 4) * ROOM)  # for the end of a task, after its claim
        stack = frames.stack()
        depth = len(stack)
        frame = Frame(self, -1, self._mark())
        ran = 0
        try:
            with self.monitor.lock():
                if self._ticker is not None:
                    raise _refusals.tick_busy()
                last_id = self.table.last_id
                self._ticker = frame
            stack.append(frame)
            now = self._reader.lenient()
            while True:
                # Not as the loop's condition: on CPython 3.13 the jump back to it is not covered by
                # the try around the loop, and a signal may be served there.
                if hand is not None and not hand.ready(False):
                    return ran
                claim = Claim()
                try:
                    with self.monitor.lock():
                        through(self.claim, claim, now, -1, last_id)
                    if claim.record is None:
                        return ran
                    claim.ending.interrupt = self.tell_room()
                    error = self._serve_one(claim, frame)
                except BaseException as cut:
                    self._blame(claim, frame, cut)
                    raise
                finally:
                    if hand is not None and claim.record is None:
                        self._unready()
                self.handle.refuse_fork()
                ran += 1
                if error is not None and is_a(error, KeyboardInterrupt, SystemExit):
                    if claim.record.failure is not None:
                        claim.record.failure.observed = True  # the caller of tick() sees it
                    try:
                        raise error
                    finally:
                        del error
                del error
                claim.ending.rethrow()
        finally:
            del stack[depth:]
            if self._ticker is frame:
                self._ticker = None

    def _unready(self) -> None:
        """Nothing was claimed after all. Whatever the hand raises stops no worker."""
        try:
            self.config.hand.unready()
        except BaseException as error:
            complain(error, "the hand of %s failed", self.config.label)

    def _serve_one(self, claim: Claim, frame: Frame) -> BaseException | None:
        """Run the body of a claimed task, or hand it over; returns what it raised here."""
        try:
            if self.config.hand is None:
                return self._run(claim, frame)
            return self._give(claim, frame)
        finally:
            del claim, frame  # as in _call

    def _blame(self, claim: Claim, frame: Frame, cut: BaseException) -> None:
        """An exception came from outside, between a claim and the end of its task. Unless the body
        had ended, or was handed over, it counts as raised by the body; the task would else stay
        RUNNING for ever."""
        if claim.given:
            return
        if claim.record is not None and claim.record.task is not None:
            ending = claim.ending
            if not ending.known:
                ending.error = cut
                ending.known = True
            self._conclude(claim.record, frame, ending)

    def _run(self, claim: Claim, frame: Frame) -> BaseException | None:
        """Run a claimed task and end it; returns what the body raised. Nothing of it is kept."""
        record = claim.record
        assert record is not None
        try:
            frame.task = record.task
            self._call(record, claim.ending)
            return self._conclude(record, frame, claim.ending)
        finally:
            del record, claim  # as in _call

    def _call(self, record: Record, ending: Ending) -> None:
        """Call the body in its context. This frame is the first of a traceback, and cut off."""
        assert record.payload is not None
        fn, args, kwargs, context = record.payload
        record.payload = None
        try:
            if self.config.call is not None:
                fn, args, kwargs = self.config.call, (record.task, fn, args, kwargs), {}
            if context is None and self.config.copy_context:
                context = Context()  # so that nothing leaks into the next task
            if context is None:
                ending.value = fn(*args, **kwargs)
            else:
                ending.value = context.run(fn, *args, **kwargs)
            ending.known = True
        except BaseException as error:
            # Not by way of the attribute: an exception class may have its own idea of that.
            traceback = sys.exc_info()[2]
            ending.traceback = None if traceback is None else traceback.tb_next
            BaseException.with_traceback(error, ending.traceback)
            ending.error = error
            ending.known = True
            del traceback
        finally:
            # The traceback's frames lead back to this one: it must hold nothing of the task.
            del fn, args, kwargs, context, ending, record

    def _give(self, claim: Claim, frame: Frame) -> BaseException | None:
        """Hand the body of a claimed task over. Where that raises, the task ends as if its body had
        raised it. Returns that, or what a body raised that has ended on this very thread."""
        record = claim.record
        assert record is not None and record.payload is not None
        ending = claim.ending
        task = record.task
        fn, args, kwargs, context = record.payload
        record.payload = None
        try:
            frame.given = task
            self.config.hand.give(task, fn, args, kwargs, context)
            claim.given = True
        except BaseException as error:
            # A signal's, just when the hand had done its work: the executor has the body.
            claim.given = claim.given or self.config.hand.holds(task)
            if self.handle.forked or claim.given or record.state >= SUCCEEDED:
                raise
            traceback = sys.exc_info()[2]
            ending.traceback = None if traceback is None else traceback.tb_next
            ending.error = error
            ending.known = True
            del traceback
        finally:
            raised, frame.raised, frame.given = frame.raised, None, None
            del task, fn, args, kwargs, context
        try:
            return self._conclude(record, frame, ending) if ending.known else raised
        finally:
            del raised, record, ending, claim  # as in _call

    def conclude(self, task: Any, result: Any, error: BaseException | None) -> None:
        """The terminal transition of a claimed task whose body ended elsewhere, by any thread:
        ``error``, or ``result`` where that is None. Nothing when the task has ended.

        It is made whatever a signal handler raises meanwhile; that, and a KeyboardInterrupt met
        while everybody was told, is raised at the end.
        """
        record: Record = task._record
        if self.handle.forked or record.state >= SUCCEEDED:
            return
        ending = Ending()
        if error is None:
            ending.value = result
        else:
            ending.error = error
            ending.traceback = _traceback_of(error)
        ending.known = True
        for frame in frames.stack():
            if frame.given is task:
                frame.raised = error
        self._conclude(record, None, ending)
        if not self.on_worker():
            ending.rethrow()

    def _conclude(
        self, record: Record, frame: Frame | None, ending: Ending
    ) -> BaseException | None:
        """End the run of a claimed task; returns what it raised. ``frame``: of the thread that ran
        it, if it was an own one."""
        if self.handle.forked:
            return None  # the parent goes on with it
        return through(self._conclude_once, record, frame, ending)

    def _conclude_once(
        self, record: Record, frame: Frame | None, ending: Ending
    ) -> BaseException | None:
        task = record.task
        error = ending.error
        if task is None:
            return error  # an earlier attempt got to the end
        record.payload = None
        if error is not None and ending.failure is None:
            ending.value = None
            # Observed until the task is seen to have FAILED.
            ending.failure = Failure.of(error, ending.traceback, f"task {record.id}", True)
        # A clock that raises KeyboardInterrupt each time may stop tick(), but not a task's end.
        forgiving = ending.tried or (frame is not None and frame.worker >= 0)
        ending.tried = True
        now = self._reader.lenient(on_worker=forgiving)
        if frame is not None:
            frame.task = None
        answered = error is not None and is_a(error, CancelRequested)
        self._end(task, ending, lambda: self.end_run(record, ending, now, answered))
        ending.value = ending.failure = ending.traceback = None
        return error

    def runs_here(self) -> bool:
        """The calling thread is a worker of this engine, inside its ``tick()``, or in a body that
        runs elsewhere."""
        return not self.handle.forked and any(frame.engine is self for frame in frames.stack())

    def on_worker(self) -> bool:
        """The calling thread is a worker of this engine."""
        return any(frame.engine is self and frame.worker >= 0 for frame in frames.stack())

    def last_awake(self) -> bool:
        """All live workers but one wait without limit, for tasks of this engine or inside a
        shutdown: that one must not. Call with the monitor held."""
        return self.blocked + self.inside_forever + 1 >= self.handle.live

    def try_block(self) -> int:
        """The calling thread is about to wait without limit for several tasks: FREE, COUNTED or
        DEADLOCK."""
        self.handle.refuse_fork()
        own = [f.worker for f in frames.stack() if f.engine is self and f.worker != ELSEWHERE]
        with self.monitor.lock():
            if not own:
                return FREE
            if -1 in own or self.last_awake():
                return DEADLOCK
            self.blocked += 1
            return COUNTED

    def end_block(self) -> None:
        """The wait after COUNTED is over."""
        if not self.handle.forked:
            with self.monitor.lock():
                self.blocked -= 1
