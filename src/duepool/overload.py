"""What a scheduler does with a submission that finds its queue full.

``overload=`` takes one of the policies below, its name, or an object of yours with one method::

    class Mine:
        def on_full(self, submission: duepool.overload.Submission):
            ...  # return a task of this scheduler, or raise

``on_full`` is called on the submitting thread, outside all locks, when the capacity or the tenant's
quota is used up or somebody waits in line for it. Its answer is what the ``submit`` method returns:
a ``Task`` of this scheduler, which need not be a new one, or for ``submit_many`` a list of as many.
Anything else is a ``TypeError``. The ``Submission`` offers what the policies below are made of, and
they use nothing else.

Whatever ``on_full`` raises, the submission leaves nothing in the queue: what it has admitted and
what has not started yet is cancelled. A closed scheduler refuses before it asks the policy.
"""

import inspect
from typing import Any, Protocol, runtime_checkable

from . import _refusals
from ._line import CAPACITY, keep
from ._submission import Submission, drop_oldest
from ._values import AHEAD, CLOSED, ENTER, NOW, QUOTA_FULL, REJECT, ROOM, TRY, timeout_s

__all__ = ["Block", "CallerRuns", "DropNewest", "DropOldest", "Policy", "Reject", "Submission"]

# More drops than a submission needs places, where others take what it frees: then it gives up.
_SPARE_DROPS = 100


@runtime_checkable
class Policy(Protocol):
    """What ``overload=`` takes."""

    def on_full(self, submission: Submission) -> Any:
        """Decide about a submission that found no room; see the module."""
        ...


class _Plain:
    """A policy without parameters."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Reject(_Plain):
    """Refuse it with ``QueueFull``. The default."""

    __slots__ = ()

    def on_full(self, submission: Submission) -> Any:
        """Refuse."""
        return submission.reject()


class Block(_Plain):
    """Wait for room on the submitting thread, first come, first served.

    ``timeout``: for at most so many real seconds (a number or timedelta; None: without limit), then
    ``QueueFull``.
    """

    __slots__ = ("timeout",)

    def __init__(self, timeout: Any = None) -> None:
        timeout_s(timeout)
        self.timeout = timeout

    def on_full(self, submission: Submission) -> Any:
        """Wait."""
        answer = submission.wait(self.timeout)
        return submission.reject() if answer is None else answer

    def __repr__(self) -> str:
        return f"Block({'' if self.timeout is None else f'timeout={self.timeout!r}'})"


class CallerRuns(_Plain):
    """Run it at once on the submitting thread, which so submits no more until it is done.

    One that is not due yet is refused with ``QueueFull``.
    """

    __slots__ = ()

    def on_full(self, submission: Submission) -> Any:
        """Run it here."""
        answer = submission.run_here()
        return submission.reject() if answer is None else answer


class DropOldest(_Plain):
    """Cancel the task that is first by (due time, id), and take its place.

    For a full quota, the tenant's first. The place of a job is never taken. ``QueueFull`` where all
    places are held by jobs, and where whatever is freed is taken by others again and again.
    """

    __slots__ = ()

    def on_full(self, submission: Submission) -> Any:
        """Make room."""
        for _ in range(submission.count + _SPARE_DROPS):
            answer = submission.retry()
            if answer is not None:
                return answer
            if submission.drop_oldest() is None:
                break
        return submission.reject()


class DropNewest(_Plain):
    """Drop the submission itself: its task is CANCELLED from the start."""

    __slots__ = ()

    def on_full(self, submission: Submission) -> Any:
        """Drop it."""
        return submission.discard()


_BY_NAME: dict[str, type[_Plain]] = {
    "reject": Reject,
    "block": Block,
    "caller_runs": CallerRuns,
    "drop_oldest": DropOldest,
    "drop_newest": DropNewest,
}


def policy_of(overload: Any) -> Any:
    """The policy by its name, or the object itself. ``ValueError`` for another name, ``TypeError``
    for what is no policy."""
    known = f"{', '.join(map(repr, _BY_NAME))}, or an object of duepool.overload or your own"
    if isinstance(overload, str):
        made = _BY_NAME.get(overload)
        if made is None:
            raise ValueError(f"overload must be one of {known}; got {overload!r}")
        policy: Any = made()
    else:
        policy = overload
    method = getattr(policy, "on_full", None)
    if isinstance(policy, type) or not callable(method) or inspect.iscoroutinefunction(method):
        raise TypeError(
            f"overload must be one of {known} with a method on_full(submission), "
            f"not {type(policy).__name__} {policy!r}"
        )
    return policy


class Handler:
    """What an engine calls with a submission for which it has no room."""

    __slots__ = ("policy",)

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __call__(self, engine: Any, raw: tuple[Any, ...]) -> Any:
        name, _, delay_ns, bodies, shown, tenant, many = raw
        if not bodies:
            return []  # none of nothing needs room, though others wait in line
        if engine.room_for(len(bodies), tenant) == ROOM:
            # It has just got free, or those who wait for it do not any more.
            answer = Submission(engine, raw)._enter_if_free()
            if answer is not None:
                return answer
        elif type(self.policy) is Reject:  # without much ado: this is when time is short
            if many:
                calls = [(fn, *args) for fn, args, _ in bodies]
                return engine.submit_many_as(name, calls, delay_ns, shown, tenant, REJECT)
            return engine.submit_as(*raw[:3], *bodies[0], shown, tenant, REJECT)
        return Submission(engine, raw)._decide(self.policy)


def handler_of(policy: Any) -> Handler:
    """What the engine calls with (engine, submission) when it is full."""
    return Handler(policy)


async def submit_async(engine: Any, options: Any, fn: Any, args: Any, kwargs: Any) -> Any:
    """Wait for room on the event loop and submit; see ``Scheduler.submit_async``."""
    # An asyncio task of its own tries again outside the body that it inherits from.
    options = options._at_this_instant()

    def attempt(mode: int) -> Any:
        return options._as(NOW, 0, fn, args, kwargs, None, mode)

    task = attempt(TRY)
    if task is None:
        room = engine.config.face.room
        task = await room.wait_async(engine, options._tenant, lambda: attempt(AHEAD))
    return task


def job_slot(engine: Any, tenant: int = CAPACITY) -> None:
    """Take a place for a job, which ``engine.free_slot(tenant)`` gives back.

    ``Block`` waits in line, ``DropOldest`` makes room; under every other policy a full queue is
    ``QueueFull``. A closed scheduler is ``SchedulerClosed``. Where it raises, no place is held.
    """
    policy, room = engine.config.overload.policy, engine.config.face.room
    verdicts: list[int] = []

    def attempt(mode: int) -> bool | None:
        verdict = keep(verdicts, engine.take_slot, tenant, mode)
        if verdict == ROOM:
            return True
        if verdict == CLOSED:
            raise _refusals.closed() if engine.broken is None else _refusals.broken(engine.broken)
        return None

    try:
        if attempt(TRY):
            return
        if engine.room_for(1, tenant) == ROOM and attempt(AHEAD if room.look_after() else TRY):
            return  # as for a submission
        if isinstance(policy, Block):
            if room.wait(engine, tenant, 1, timeout_s(policy.timeout), lambda: attempt(AHEAD)):
                return
        elif isinstance(policy, DropOldest):
            for _ in range(1 + _SPARE_DROPS):
                if drop_oldest(engine, tenant, 1) is None:
                    break
                if attempt(AHEAD):
                    return
        if attempt(ENTER):
            return
        config = engine.config
        if verdicts[-1] == QUOTA_FULL:
            name, quota = config.face.tenant_names[tenant], config.quotas[tenant]
            raise _refusals.full_quota(name, quota, 1)
        raise _refusals.full(config.capacity, 1)
    except BaseException:
        if verdicts and verdicts[-1] == ROOM:
            engine.free_slot(tenant)
        raise
