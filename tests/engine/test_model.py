"""Admission, quotas, lines and places against a model that is too plain to be wrong."""

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duepool import QueueFull, SchedulerClosed
from duepool._values import (
    AHEAD,
    CLOSED,
    DROPPED,
    ENTER,
    FULL,
    HERE,
    QUOTA_FULL,
    REJECT,
    ROOM,
    RUN,
    TRY,
)

from .support import CANCELLED, QUEUED, SUCCEEDED, TENANTS, Bench, RoomDouble, S

EXAMPLES = 150
STEPS = 50
CLOSE_AFTER_STEPS = 30

MODES = st.sampled_from([ENTER, TRY, AHEAD, RUN, HERE, DROPPED, REJECT])
BOUNDED = st.sampled_from([ENTER, TRY, AHEAD, REJECT])
TENANT = st.sampled_from([-1, -1, 0, 1, 2])
DELAYS = st.integers(0, 4)
INDEXES = st.integers(0, 30)

POLICY = "the policy was asked"


class Admission(RuleBasedStateMachine):
    """One engine in manual mode, and lists of who should hold what."""

    engine = ""

    @initialize(
        capacity=st.one_of(st.none(), st.integers(1, 8)),
        quotas=st.tuples(*[st.integers(1, 5)] * len(TENANTS)),
        policy=st.booleans(),
    )
    def start(self, capacity: int | None, quotas: tuple[int, ...], policy: bool) -> None:
        self.room = RoomDouble()
        overload = (lambda core, submission: POLICY) if policy else None
        self.bench = Bench(
            self.engine, capacity=capacity, quotas=quotas, overload=overload, room=self.room
        )
        self.core = self.bench.core
        self.capacity, self.quotas, self.policy = capacity, quotas, policy
        self.queued: list[Any] = []  # (task, tenant, is a job's run), in order of ids
        self.slots: list[int] = []  # by job, its tenant
        self.lines: list[int] = []  # by waiting submission, its tenant
        self.ended: list[tuple[Any, Any]] = []  # (task, state)
        self.rejected = 0
        self.closed = False
        self.steps = 0

    # -- the model -----------------------------------------------------------------------------

    def holders(self) -> list[int]:
        """By taken place, its tenant."""
        return [tenant for _, tenant, run in self.queued if not run] + self.slots

    def verdict(self, k: int, tenant: int, ahead: bool) -> int:
        holders = self.holders()
        if self.closed:
            return CLOSED
        if self.capacity is not None and len(holders) + k > self.capacity:
            return FULL
        if -1 in self.lines and not ahead:
            return FULL
        if tenant >= 0:
            if holders.count(tenant) + k > self.quotas[tenant]:
                return QUOTA_FULL
            if tenant in self.lines and not ahead:
                return QUOTA_FULL
        return ROOM

    def expected(self, k: int, tenant: int, mode: int) -> Any:
        """What a submission gives: ROOM, None, the policy's answer, or the error's type."""
        verdict = self.verdict(k, tenant, mode == AHEAD)
        if mode in (RUN, HERE, DROPPED):
            verdict = CLOSED if self.closed else ROOM
        if verdict == ROOM or (verdict == CLOSED and mode == RUN):
            return ROOM if verdict == ROOM else None
        if verdict != CLOSED and mode in (TRY, AHEAD):
            return None
        if verdict != CLOSED and mode == ENTER and self.policy:
            return POLICY
        self.rejected += k
        return SchedulerClosed if verdict == CLOSED else QueueFull

    def leave(self, task: Any, state: Any) -> None:
        self.queued = [entry for entry in self.queued if entry[0] is not task]
        self.ended.append((task, state))

    def pick(self, index: int) -> Any:
        return self.queued[index % len(self.queued)]

    def freed(self, before: int, places: int) -> None:
        """The room was told if a place got free while somebody waited."""
        if self.lines and places:
            assert self.room.calls > before

    # -- the steps -----------------------------------------------------------------------------

    @rule(mode=MODES, tenant=TENANT, delay=DELAYS)
    def submit(self, mode: int, tenant: int, delay: int) -> None:
        expected = self.expected(1, tenant, mode)
        try:
            answer = self.bench.enter(mode=mode, tenant=tenant, after=delay)
        except (QueueFull, SchedulerClosed) as error:
            assert type(error) is expected
            return
        if expected is not ROOM:
            assert answer == expected
        elif mode in (HERE, DROPPED):
            self.ended.append((answer, SUCCEEDED if mode == HERE else CANCELLED))
        else:
            self.queued.append((answer, tenant, mode == RUN))

    @rule(k=st.integers(1, 5), mode=BOUNDED, tenant=TENANT, delay=DELAYS)
    def submit_many(self, k: int, mode: int, tenant: int, delay: int) -> None:
        expected = self.expected(k, tenant, mode)
        try:
            answer = self.bench.many(k, mode=mode, tenant=tenant, after=delay)
        except (QueueFull, SchedulerClosed) as error:
            assert type(error) is expected
            return
        if expected is not ROOM:
            assert answer == expected
        else:
            assert len(answer) == k
            self.queued.extend((task, tenant, False) for task in answer)

    @rule(tenant=TENANT, mode=st.sampled_from([ENTER, TRY, AHEAD]))
    def take_slot(self, tenant: int, mode: int) -> None:
        verdict = self.verdict(1, tenant, mode == AHEAD)
        answer = self.core.take_slot(tenant, mode)
        assert answer in ((FULL, QUOTA_FULL) if verdict in (FULL, QUOTA_FULL) else (verdict,))
        if verdict == ROOM:
            self.slots.append(tenant)
        elif mode == ENTER:
            self.rejected += 1

    @precondition(lambda self: self.slots)
    @rule(index=INDEXES)
    def free_slot(self, index: int) -> None:
        before = self.room.calls
        self.core.free_slot(self.slots.pop(index % len(self.slots)))
        self.freed(before, 1)

    @rule(tenant=TENANT)
    def enter_line(self, tenant: int) -> None:
        self.core.enter_line(tenant)
        self.lines.append(tenant)

    @precondition(lambda self: self.lines)
    @rule(index=INDEXES)
    def leave_line(self, index: int) -> None:
        self.core.leave_line(self.lines.pop(index % len(self.lines)))

    @precondition(lambda self: self.queued)
    @rule(index=INDEXES, only=st.booleans())
    def cancel(self, index: int, only: bool) -> None:
        task, _, run = self.pick(index)
        before = self.room.calls
        assert self.core.cancel_only_queued(task) if only else self.core.cancel(task)
        self.leave(task, CANCELLED)
        self.freed(before, not run)

    @precondition(lambda self: self.queued)
    @rule(index=INDEXES, at=st.integers(-2, 40))
    def move(self, index: int, at: int) -> None:
        task, _, _ = self.pick(index)
        assert self.core.move_to(task, at * S)
        assert task.due_ns == max(at * S, self.bench.clock.now_ns())

    @rule(seconds=st.integers(0, 3))
    def run_what_is_due(self, seconds: int) -> None:
        self.bench.clock.advance(seconds)
        now, before = self.bench.clock.now_ns(), self.room.calls
        due = [entry for entry in self.queued if entry[0].due_ns <= now]
        assert self.core.tick() == len(due)
        for task, _, _ in due:
            self.leave(task, SUCCEEDED)
        self.freed(before, sum(not run for _, _, run in due))

    @rule()
    def cancel_runs(self) -> None:
        runs = [task for task, _, run in self.queued if run]
        assert self.core.cancel_runs() == len(runs)
        for task in runs:
            self.leave(task, CANCELLED)

    @precondition(lambda self: self.steps > CLOSE_AFTER_STEPS)
    @rule()
    def close(self) -> None:
        before = self.room.calls
        self.core.close(0)
        self.closed = True
        self.freed(before, 1)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def agree(self) -> None:
        self.steps += 1
        counts = self.core.counts()
        states = [state for _, state in self.ended]
        assert counts.queued == len(self.queued)
        assert counts.succeeded == states.count(SUCCEEDED)
        assert counts.cancelled == states.count(CANCELLED)
        assert counts.admitted == len(self.queued) + len(self.ended)
        assert counts.rejected == self.rejected
        assert self.core.tasks() == [task for task, _, _ in self.queued]
        for tenant in (-1, 0, 1, 2):
            own = [task for task, owner, run in self.queued if not run and (tenant in (-1, owner))]
            first = min(own, key=lambda task: (task.due_ns, task.id), default=None)
            assert self.core.oldest(tenant) is first
            for k in (1, 2, 5):
                assert self.core.room_for(k, tenant) == self.verdict(k, tenant, True)

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        for task, _, _ in self.queued:
            assert task.state == QUEUED
        for task, state in self.ended:
            assert task.state == state
        self.bench.check()


def test_admission_agrees_with_its_model(engine):
    kind = type("Admission", (Admission,), {"engine": engine})
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            # Explaining a failure traces every line and takes minutes.
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
        ),
    )
