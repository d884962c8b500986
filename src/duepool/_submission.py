"""A submission that found its queue full, as the overload policies see it.

Guarantees: it is admitted once at most. What has been admitted is recorded in the step that admits
it (see ``_line.keep``), so that whatever cuts a policy short, nothing of it stays in the queue.
"""

from typing import Any, cast

from . import _bodies, _interrupt, _rest
from ._line import CAPACITY, keep
from ._values import (
    AFTER,
    AHEAD,
    AT,
    BY_DROPPED,
    DROPPED,
    HERE,
    MAX_NS,
    NOW,
    QUOTA_FULL,
    REJECT,
    ROOM,
    TRY,
    check_body,
    timeout_s,
)
from .task import Task


class Submission:
    """One call of a ``submit`` method that found no room, for its policy to decide about.

    ``count``: how many tasks it is about, more than one only for ``submit_many``. ``name`` and
    ``tenant``: its options, None without. Each method that lets it in returns its ``Task`` (for
    ``submit_many`` the list of them); once it is in, every method returns that same answer.

    Its due time is settled: waiting does not put it off, and what became due meanwhile runs at
    once. All of it is to be used in ``on_full`` only.
    """

    __slots__ = (
        "_answers", "_bodies", "_due_ns", "_engine", "_freed", "_kind", "_many", "_over", "_shown",
        "_tenant", "count", "name",
    )  # fmt: skip

    def __init__(self, engine: Any, raw: tuple[Any, ...]) -> None:
        name, kind, value, bodies, shown, tenant, many = raw
        self.name: str | None = name
        self.count: int = len(bodies)
        self._engine = engine
        self._bodies = bodies
        self._shown = shown
        self._tenant: int = tenant
        self._many: bool = many
        self._kind: int = kind if value or kind == AT else NOW
        self._due_ns: int = value
        if self._kind == AFTER:
            self._kind = AT
            self._due_ns = min(engine.now_ns() + value, MAX_NS)
        # What it was admitted as; at most one answer, None if an attempt found no room.
        self._answers: list[Any] = []
        self._freed = False
        self._over = False

    @property
    def tenant(self) -> str | None:
        """The tenant on whose quota it counts; None without one."""
        if self._tenant < 0:
            return None
        return cast(str, self._engine.config.face.tenant_names[self._tenant])

    def retry(self) -> Any:
        """Try again: its answer if there is room now, else None.

        It overtakes nobody who waits in line, but for the places that ``drop_oldest`` freed.
        """
        return self._enter(AHEAD) if self._freed else self._enter_if_free()

    def wait(self, timeout: Any = None) -> Any:
        """Wait in line for room, for at most ``timeout`` real seconds (None: without limit): its
        answer, or None when the time passed first or it could never fit.

        First come, first served. Raises ``SchedulerClosed`` when the scheduler is shut down
        meanwhile, and, without a time-out, ``WouldDeadlock`` in a body that leaves no other worker
        to make room or that ``tick()`` runs.
        """
        limit_s = timeout_s(timeout)
        self._check()
        if self._answer is not None or not self._fits():
            return self._answer
        room = self._engine.config.face.room
        return room.wait(
            self._engine, self._tenant, self.count, limit_s, lambda: self._enter(AHEAD)
        )

    def run_here(self) -> Any:
        """Run the body now, on the calling thread, outside the capacity: its answer, a task that
        has ended; several one after the other. None, and nothing is run, if it is not due yet.

        What the body raises is stored in the task; a ``KeyboardInterrupt`` is raised again too,
        unless the calling thread is one of the scheduler's workers.
        """
        self._check()
        if self._answer is None and self._delay_ns() == 0 and self._runs_on_threads():
            with _interrupt.Held(), _rest.hosting():
                self._settle(HERE)
        return self._answer

    def drop_oldest(self) -> Task | None:
        """Cancel the task that is first by (due time, id) of those that hold a place (of the
        tenant's quota, where that is what is full), with reason ``"dropped"``: that task, or None,
        and nothing is dropped, if there is none or the submission could never fit.

        A ``retry()`` after it may take the place ahead of those who wait in line.
        """
        self._check()
        if self._answer is not None or not self._fits():
            return None
        dropped: Task | None = drop_oldest(self._engine, self._tenant, self.count)
        if dropped is not None:
            self._freed = True
        return dropped

    def discard(self) -> Any:
        """Drop the submission itself: its answer, a task that is CANCELLED already, with reason
        ``"dropped"``."""
        self._check()
        if self._answer is None:
            self._settle(DROPPED)
        return self._answer

    def reject(self) -> Any:
        """Refuse it: raises ``QueueFull``, which ``stats().rejected`` counts.

        If there is room by now, and nobody waits for it, the submission enters after all.
        """
        return self._enter(REJECT)

    @property
    def _answer(self) -> Any:
        return self._answers[-1] if self._answers else None

    def _check(self) -> None:
        if self._over:
            raise RuntimeError("a submission is decided inside on_full(); this one is over")

    def _enter(self, mode: int) -> Any:
        self._check()
        if self._answer is not None:
            return self._answer
        engine = self._engine
        if self._many:
            calls = [(fn, *args) for fn, args, _ in self._bodies]
            return keep(
                self._answers,
                engine.submit_many_as,
                self.name, calls, self._delay_ns(), self._shown, self._tenant, mode,
            )  # fmt: skip
        try:
            return self._enter_one(self._kind, self._due_ns, mode)
        except ValueError:
            # It came in time for past_due="reject", and must not suffer for having waited.
            if self._kind == NOW or self._delay_ns():
                raise
        return self._enter_one(NOW, 0, mode)

    def _enter_if_free(self) -> Any:
        answer = self._enter(TRY)
        if answer is None and self._engine.room_for(self.count, self._tenant) == ROOM:
            # There is room, and somebody waits for it, or did.
            nobody = self._engine.config.face.room.look_after()
            answer = self._enter(AHEAD if nobody else TRY)
        return answer

    def _enter_one(self, kind: int, value: int, mode: int) -> Any:
        fn, args, kwargs = self._bodies[0]
        return keep(
            self._answers,
            self._engine.submit_as,
            self.name, kind, value, fn, args, kwargs, self._shown, self._tenant, mode,
        )  # fmt: skip

    def _settle(self, mode: int) -> None:
        """Admit each body in a mode that needs no room."""
        delay_ns = self._delay_ns()
        tasks = [
            self._engine.submit_as(
                self.name, AFTER, delay_ns, fn, args, kwargs, self._shown, self._tenant, mode
            )
            for fn, args, kwargs in self._bodies
        ]
        self._answers.append(tasks if self._many else tasks[0])

    def _delay_ns(self) -> int:
        return 0 if self._kind == NOW else max(0, self._due_ns - int(self._engine.now_ns()))

    def _fits(self) -> bool:
        config = self._engine.config
        return (config.capacity is None or self.count <= config.capacity) and (
            self._tenant < 0 or self.count <= config.quotas[self._tenant]
        )

    def _runs_on_threads(self) -> bool:
        if self._engine.config.coroutines:
            for fn, _, _ in self._bodies:
                try:
                    check_body(getattr(fn, "fn", fn))
                except TypeError:
                    return False
        return True

    def _decide(self, policy: Any) -> Any:
        """What ``policy`` answers, checked."""
        try:
            answer = policy.on_full(self)
            self._check_answer(policy, answer)
            _bodies.disown(self._bodies, self._answer, answer)
            self._over = True
            return answer
        except BaseException:
            self._over = True
            self._withdraw()
            raise

    def _check_answer(self, policy: Any, answer: Any) -> None:
        tasks = answer if self._many else [answer]
        if (
            not isinstance(tasks, list)
            or len(tasks) != self.count
            or not all(map(self._own, tasks))
        ):
            what = f"a list of {self.count} tasks" if self._many else "a task"
            raise TypeError(
                f"on_full() of the overload policy {policy!r} must return {what} of this "
                f"scheduler, or raise; it returned {answer!r}"
            )

    def _own(self, task: Any) -> bool:
        engine = self._engine
        return isinstance(task, engine.config.task_type) and task._engine is engine

    def _withdraw(self) -> None:
        answer = self._answer
        if answer is not None:
            for task in answer if self._many else [answer]:
                self._engine.cancel_only_queued(task, BY_DROPPED)

    def __repr__(self) -> str:
        given = "".join(
            f", {key}={value!r}"
            for key, value in (("name", self.name), ("tenant", self.tenant))
            if value is not None
        )
        what = "1 task" if self.count == 1 else f"{self.count} tasks"
        return f"<Submission of {what}{given}>"


def drop_oldest(engine: Any, tenant: int, count: int) -> Any:
    """Cancel the oldest task whose place would help; None if there is none."""
    # Where there is room, but others wait in line for it: their line may be that of the quota.
    if tenant >= 0 and engine.room_for(count, tenant) in (ROOM, QUOTA_FULL):
        among = tenant
    else:
        among = CAPACITY
    while True:
        oldest = engine.oldest(among)
        if oldest is None or engine.cancel_only_queued(oldest, BY_DROPPED):
            return oldest
