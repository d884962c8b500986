"""Who gets in, and how: submissions in every mode, the places of jobs, and who waits in line.

Guarantees:

- Everything that can raise comes before admission, which is one hold of the monitor: a call that
  raises has admitted nothing. What a signal handler raises later is raised after the step is
  complete: the task is then admitted although no handle was returned. A place in the queue or in a
  line is given back then, since nobody would know of it.
- A body that the caller runs is ended by him, whatever is raised where, as in ``runs``.
- The overload policy is called outside every lock, and nothing is counted for what it is asked.

The modes are those of ``duepool._values``.
"""

import logging
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

from duepool import _refusals
from duepool._values import (
    AFTER,
    AHEAD,
    AT,
    DROPPED,
    ENTER,
    HERE,
    MAX_NS,
    NOW,
    RUN,
    TRY,
    EngineConfig,
    check_body,
    due_overflow,
)

from . import frames
from .admission import ADMITTED, CLOSED, FULL, Place
from .ending import is_a
from .ends import seconds_of
from .frames import ELSEWHERE, Frame
from .handle import complain
from .monitor import ROOM, room, through
from .record import Record
from .runs import Runs
from .scheduler import Call, checked_calls
from .steps import Claim

# What the overload policy is given: name, kind, value, bodies, shown, tenant, many.
Submission: TypeAlias = tuple[str | None, int, int, list[Call], Any, int, bool]


class Intake(Runs):
    """The submitting half of an engine."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.broken: BaseException | None = None  # what an initializer raised
        # Guarded by the monitor:
        self._next_index = 0  # of the next worker that is hired

    # -- submission --------------------------------------------------------------------------

    def submit_as(
        self,
        name: str | None,
        kind: int,
        value: int,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        shown: Any = None,
        tenant: int = -1,
        mode: int = ENTER,
        context: Context | EllipsisType | None = ...,
    ) -> Any:
        """Admit one task; ``value`` is a delay (AFTER) or an instant (AT) in nanoseconds, ``shown``
        what the caller gave for it. ``context`` (not under ENTER): one to run in, for this run
        alone; None for none; else a copy of the caller's.

        Returns the task; None where TRY and AHEAD find it full and RUN finds it closed, or what
        the overload policy gives.
        """
        self.handle.refuse_fork()
        check_body(fn, self.config.coroutines)
        submission = (name, kind, value, [(fn, args, kwargs or None)], shown, tenant, False)
        if mode == HERE:
            return self._run_here(submission, context)
        return self._submit(submission, mode, context)

    def submit_many_as(
        self,
        name: str | None,
        calls: Iterable[Any],
        delay_ns: int,
        shown: Any = None,
        tenant: int = -1,
        mode: int = ENTER,
    ) -> Any:
        """Admit each of ``calls``, a callable or a tuple (fn, *args), in one step, or none; returns
        the list of tasks, or what ``submit_as`` returns where it is no task."""
        self.handle.refuse_fork()
        checked = checked_calls(calls, self.config.coroutines)
        return self.submit_all(name, checked, delay_ns, shown, tenant, mode)

    def submit_all(
        self,
        name: str | None,
        calls: list[Call],
        delay_ns: int,
        shown: Any = None,
        tenant: int = -1,
        mode: int = ENTER,
    ) -> Any:
        """The same for calls that ``checked_calls`` gave."""
        kind = AFTER if delay_ns else NOW
        return self._submit((name, kind, delay_ns, calls, shown, tenant, True), mode)

    def _submit(
        self,
        submission: Submission,
        mode: int,
        context: Context | EllipsisType | None = ...,
        claim: Claim | None = None,
    ) -> Any:
        name, kind, value, calls, shown, tenant, many = submission
        count = len(calls)
        if kind == AFTER and value > MAX_NS:
            raise due_overflow("delay", shown, self._reader.strict())
        if self.admission.closed:  # for ever
            return self._refused(CLOSED, submission, mode)
        self._hire(count)
        now = self._reader.strict()
        due = now if kind == NOW else now + value if kind == AFTER else max(now, value)
        past = kind == AT and value < now and self.config.past_due_reject and mode != RUN
        wrong = due > MAX_NS or past
        name = None if name is None else str(name)
        if count > 1 and not wrong:  # refused before there is a record for each
            with self.monitor.lock():
                verdict = self._verdict(count, tenant, mode)
            if verdict not in (ADMITTED, CLOSED):
                return self._refused(verdict, submission, mode)
        records = [self._record(call, due, now, name, tenant, mode, context) for call in calls]
        tasks = [record.task for record in records]
        with self.monitor.lock():
            verdict = self._verdict(count, tenant, mode)
            if verdict == ADMITTED and not wrong:
                if mode == DROPPED:
                    through(self.enter_dropped, records[0], now)
                elif claim is not None:
                    through(self.enter_claimed, claim, records[0], now)
                else:
                    through(self.admit, records)
                    return tasks if many else tasks[0]
        if verdict != ADMITTED or wrong or mode == DROPPED:
            for record in records:
                record.task = record.payload = None  # breaks the cycle
        if verdict != CLOSED:
            if due > MAX_NS:
                raise due_overflow("delay", seconds_of(value) if shown is None else shown, now)
            if wrong:
                raise _refusals.past(value, now)
        if verdict != ADMITTED:
            return self._refused(verdict, submission, mode)
        return tasks[0]

    def _verdict(self, k: int, tenant: int, mode: int) -> int:
        """May k more enter in this mode? Call with the monitor held."""
        if mode in (RUN, HERE, DROPPED):
            return CLOSED if self.admission.closed else ADMITTED
        return self.admission.verdict(k, tenant, mode == AHEAD)

    def _record(
        self,
        call: Call,
        due_ns: int,
        now_ns: int,
        name: str | None,
        tenant: int,
        mode: int,
        context: Context | EllipsisType | None,
    ) -> Record:
        """A record with its task, not admitted yet."""
        fn, args, kwargs = call
        if not self.config.copy_context:
            context = None
        elif mode == ENTER or isinstance(context, EllipsisType):
            context = copy_context() or None
        record = Record(due_ns, now_ns, name)
        record.tenant = tenant
        record.slotless = mode == RUN
        record.payload = (fn, args, kwargs or {}, context)
        task = object.__new__(self.config.task_type)
        task._engine = self
        task._record = record
        record.task = task
        return record

    def _refused(self, verdict: int, submission: Submission, mode: int) -> Any:
        """What becomes of a submission that is not admitted; it is counted where it is raised."""
        _, _, _, calls, _, tenant, _ = submission
        if verdict == CLOSED and mode == RUN:
            return None
        if verdict != CLOSED:
            if mode in (TRY, AHEAD):
                return None
            if mode == ENTER and self.config.overload is not None:
                return self.config.overload(self, submission)
        with self.monitor.lock():
            self.admission.refuse(len(calls))
        if verdict == CLOSED:
            self._raise_closed()
        if verdict == FULL:
            raise _refusals.full(self.admission.capacity or 0, len(calls))
        who = self.config.face.tenant_names[tenant]
        raise _refusals.full_quota(who, self.admission.quotas[tenant], len(calls))

    def _raise_closed(self) -> NoReturn:
        if self.broken is not None:
            raise _refusals.broken(self.broken)
        raise _refusals.closed()

    def _run_here(self, submission: Submission, context: Context | EllipsisType | None) -> Any:
        """Admit a body that the caller claims at once, and run it. A KeyboardInterrupt, which may
        be meant for the caller, is raised again when the task has ended, unless he is a worker."""
        room(2 * ROOM)  # for the end of the task, after its claim
        stack = frames.stack()
        depth = len(stack)
        frame = Frame(self, ELSEWHERE, self._mark())
        claim = Claim()
        task = error = None
        try:
            try:
                task = self._submit(submission, HERE, context, claim)
                stack.append(frame)
                error = self._run(claim, frame)
            except BaseException as cut:
                self._blame(claim, frame, cut)
                raise
            finally:
                del stack[depth:]
            self.handle.refuse_fork()
            if not self.on_worker():
                if error is not None and is_a(error, KeyboardInterrupt):
                    if task._record.failure is not None:
                        task._record.failure.observed = True
                    raise error
                claim.ending.rethrow()
            return task
        finally:
            # The traceback's frames lead back to this one: it must hold nothing of the task.
            del submission, context, task, error, claim, frame

    # -- places that jobs hold, and who waits in line ------------------------------------------

    def take_slot(self, tenant: int = -1, mode: int = ENTER) -> int:
        """Take a place for a job: ADMITTED (0), or CLOSED, FULL or QUOTA_FULL (1, 2, 3). A refusal
        is counted under ENTER; AHEAD minds nobody in line. Nothing is taken if it raises."""
        self.handle.refuse_fork()
        place = Place(tenant, False)
        try:
            with self.monitor.lock():
                return through(self.take_place, place, mode == AHEAD, mode == ENTER)
        except BaseException:
            self._vacate(place)
            raise

    def free_slot(self, tenant: int = -1) -> None:
        """Give the place of a job back. It is, whatever a signal handler raises meanwhile."""
        if self.handle.forked:
            return
        place = Place(tenant, True)
        try:
            cut = self._vacate(place)
        except RuntimeError:  # a finalizer under this very lock: nothing is done
            raise
        except BaseException:
            if place.holds_slot:
                self._vacate(place)
            else:
                self.tell_room()
            raise
        if cut is not None and not self.on_worker():
            try:
                raise cut
            finally:
                del cut

    def _vacate(self, place: Place) -> BaseException | None:
        """Give a place back if it is held; returns what cut the room's telling short."""
        if not place.holds_slot:
            return None
        with self.monitor.lock():
            through(self.admission.give_back, place)
        return self.tell_room()

    def room_for(self, k: int, tenant: int = -1) -> int:
        """Is there room for k more, minding nobody in line? 0, or why not, as ``take_slot``."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            return self.admission.verdict(k, tenant, True)

    def enter_line(self, tenant: int = -1) -> None:
        """One more waits for the capacity, or for a tenant's quota. Nobody does if it raises."""
        self.handle.refuse_fork()
        place = Place(tenant, False)
        try:
            with self.monitor.lock():
                through(self.admission.line_up, place)
        except BaseException:
            self._step_out(place)
            raise

    def leave_line(self, tenant: int = -1) -> None:
        """One less does. He still does if it raises."""
        if self.handle.forked:
            return
        place = Place(tenant, True)
        try:
            self._step_out(place)
        except BaseException:
            if not place.holds_slot:
                with self.monitor.lock():
                    through(self.admission.line_up, place)
            raise

    def _step_out(self, place: Place) -> None:
        if place.holds_slot:
            with self.monitor.lock():
                through(self.admission.step_out, place)

    # -- workers -------------------------------------------------------------------------------

    def _hire(self, count: int) -> None:
        """Start one more worker for each of ``count`` submissions while there may be more.

        Raises what the platform raises when a thread cannot start and none lives.
        """
        handle = self.handle
        for _ in range(count):
            if handle.hired >= self.max_workers:
                return
            index = -1
            token: list[None] = [None]
            self.config.crew.expect(token)
            try:
                with self.monitor.lock():
                    if self.admission.closed or handle.hired >= self.max_workers:
                        return
                    index = self._next_index
                    self._next_index += 1
                    handle.hired += 1
                    handle.live += 1
                self.config.crew.hire(handle, index, token)
            except BaseException as error:
                if index < 0 or self.unhire(token) < 1 or not isinstance(error, Exception):
                    raise
                complain(error, "no further worker could be started", level=logging.WARNING)
                return
            finally:
                self.config.crew.forget(token)

    def unhire(self, token: list[None]) -> int:
        """The worker that was counted for ``token`` will never come, unless its thread has taken
        it; how many live, -1 if it works or was given up before."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            if not token:
                return -1
            # The thread takes it by a pop without the lock: only one of the two succeeds.
            try:
                token.pop()
            except IndexError:
                return -1
            self.handle.hired -= 1
            self.handle.live -= 1
            live = self.handle.live
        self.handle.notify()
        return live
