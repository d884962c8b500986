"""When a running body is *at rest*: it will not go on before the clock moves or a task ends.

Whoever moves a manual clock from deadline to deadline waits until every body rests. A body that
begins to sleep, or to wait for a task, says so with a token, which it takes back before it goes on.

A token is a claim to be looked at, not a fact: it is registered a moment before the wait begins and
taken back a moment after it is over. Whether the body rests is therefore asked of the token each
time (``holds``), which looks at what would end the wait: a sleeper rests while its wake-up is to
come and nobody has asked it to stop, a waiter while what it waits for has not ended.

``resting`` looks at all schedulers of a clock. Its argument:

- ``counts()`` of a scheduler changes with every admission, claim, request and end, and never comes
  back to what it was: the numbers admitted and ended only grow, and while both stand still, tasks
  can only go from queued to running, and from running to asked to stop.
- All counts are read before the first token is looked at, and again after the last one. Where they
  are the same, the running bodies of every scheduler were the same ones all along, and each of them
  has been seen at rest in between.
- Once seen at rest, a body is at rest until the clock moves (only the caller moves it), it is asked
  to stop, or what it waits for ends; and the last two would have changed the counts. Hence at the
  second reading all of them rest at once, and none can act unless somebody outside does.
- Nothing is about to start either: what is due and queued, while a worker is free to claim it,
  counts as not at rest, whether that worker has woken up yet or not.
- Callbacks of a task that has ended belong to it: a job is armed again by one. While somebody is
  told of an end (``telling``), nothing rests.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ._current import current_task
from ._values import FULL, MANUAL, QUOTA_FULL, TaskState, clock_kind
from .errors import WouldDeadlock

_PATIENCE_S = 0.001


class Rest:
    """A body's reason to stand still, kept by the crew of its scheduler.

    ``task`` is the body's own, ``tasks`` that one and those whose bodies it keeps on its thread;
    ``end_ns`` is the instant that ends the rest, None if no instant does.
    """

    __slots__ = ("end_ns", "task", "tasks")

    def __init__(self, task: Any, end_ns: int | None = None) -> None:
        self.task = task
        self.tasks = (task, *_hosts.get(threading.get_ident(), ()))
        self.end_ns = end_ns

    def holds(self, now_ns: int) -> bool:
        """True while nothing but the clock, or the end of another task, can end the rest."""
        raise NotImplementedError


class Asleep(Rest):
    """In ``duepool.sleep`` until ``end_ns``."""

    __slots__ = ()

    def holds(self, now_ns: int) -> bool:
        """Its time is to come and nobody has asked it to stop."""
        to_come = self.end_ns is not None and self.end_ns > now_ns
        return to_come and bool(self.task.state == TaskState.RUNNING)


class Awaits(Rest):
    """In ``result()`` or ``exception()`` of another task."""

    __slots__ = ("_target",)

    def __init__(self, task: Any, target: Any) -> None:
        super().__init__(task)
        self._target = target

    def holds(self, now_ns: int) -> bool:
        """What it waits for has not ended."""
        return not self._target.done()


class AwaitsSeveral(Rest):
    """In ``concurrent.futures.wait`` or ``as_completed``."""

    __slots__ = ("_event",)

    def __init__(self, task: Any, event: Any) -> None:
        super().__init__(task)
        self._event = event

    def holds(self, now_ns: int) -> bool:
        """The wait is not over. A task is seen to have ended a moment before its waiters are told:
        every such moment that has begun is waited out."""
        return bool(self._event.stands())


class Listens(Rest):
    """In ``token().wait()`` without a time-out."""

    __slots__ = ("_target",)

    def __init__(self, task: Any, target: Any) -> None:
        super().__init__(task)
        self._target = target

    def holds(self, now_ns: int) -> bool:
        """The task whose token it is runs (or is queued) and was not asked to stop."""
        return not self._target.done() and self._target.cancel_reason is None


class AwaitsRoom(Rest):
    """In a submission that waits in line for places of the queue of ``engine``."""

    __slots__ = ("_engine", "_size", "_tenant")

    def __init__(self, task: Any, engine: Any, size: int, tenant: int) -> None:
        super().__init__(task)
        self._engine = engine
        self._size = size
        self._tenant = tenant

    def holds(self, now_ns: int) -> bool:
        """There are not so many places."""
        return self._engine.room_for(self._size, self._tenant) in (FULL, QUOTA_FULL)


def enter(rest: Rest) -> Rest:
    """Register ``rest``; to be given to ``leave`` before the body goes on."""
    for task in rest.tasks:
        task._engine.config.crew.rests[rest] = None
    return rest


def leave(rest: Rest | None) -> None:
    """Take ``rest`` back."""
    if rest is not None:
        for task in rest.tasks:
            task._engine.config.crew.rests.pop(rest, None)


# By thread, the tasks whose bodies run those of others within themselves, the innermost last.
_hosts: dict[int, list[Any]] = {}


@contextmanager
def hosting() -> Iterator[None]:
    """The body on the calling thread, if there is one, runs another task's within itself: where
    that one rests, both do."""
    me = current_task()
    if me is None:
        yield
        return
    hosts = _hosts.setdefault(threading.get_ident(), [])
    hosts.append(me)
    try:
        yield
    finally:
        hosts.pop()
        if not hosts:
            _hosts.pop(threading.get_ident(), None)


def begin_waiting(target: Any, kind: type[Awaits] | type[Listens] = Awaits) -> Rest | None:
    """The calling thread waits for ``target``: the token of its body, if there is one and both go
    by the same manual clock."""
    clock = target._engine.clock
    if clock_kind(clock) != MANUAL:
        return None
    me = current_task()
    if me is None or me._engine.clock is not clock:
        return None
    return enter(kind(me, target))


def begin_waiting_for_room(engine: Any, size: int, tenant: int) -> Rest | None:
    """The same for a submission to ``engine`` that waits in line."""
    clock = engine.clock
    if clock_kind(clock) != MANUAL:
        return None
    me = current_task()
    if me is None or me._engine.clock is not clock:
        return None
    return enter(AwaitsRoom(me, engine, size, tenant))


def begin_waiting_for_several(event: Any) -> Rest | None:
    """The same for the event of a waiter of ``concurrent.futures``; to be called by the method that
    ``wait`` and ``as_completed`` call.

    They tell the event nothing of the futures: these are read from their frame. Were they kept
    there under another name, those that are no tasks would be overlooked.
    """
    clock = event.lists[0].engine.clock if event.lists else None
    if clock_kind(clock) != MANUAL:
        return None
    me = current_task()
    if me is None or me._engine.clock is not clock:
        return None
    seen = sys._getframe(2).f_locals
    futures = tuple(seen.get("pending") or seen.get("fs") or ())
    engines = [getattr(future, "_engine", None) for future in futures if not future.done()]
    engines += [waiters.engine for waiters in event.lists if not futures]
    if any(getattr(engine, "clock", None) is not clock for engine in engines):
        return None  # it may go on at any moment
    return enter(AwaitsSeveral(me, event))


# -- the look at all schedulers of a clock -------------------------------------------------------


def engines_of(attached: list[Any]) -> list[Any]:
    """The engines among what is attached to a manual clock, in the order of their making."""
    return [
        engine
        for one in attached
        if (handle := getattr(one, "handle", None)) is not None
        and not handle.forked
        and (engine := handle.engine()) is not None
    ]


def resting(engines: list[Any], now_ns: int) -> bool:
    """True when nothing that these engines have claimed, or could claim now, goes on by itself."""
    before = [_counted(engine) for engine in engines]
    for engine, counted in zip(engines, before, strict=True):
        resters = _resters(engine, now_ns)
        if counted.telling or len(resters) < counted.running:
            return False
        due_ns = engine.next_due_ns()
        if (
            due_ns is not None
            and due_ns <= now_ns
            and not _all_taken(engine, resters, counted.live)
        ):
            return False
    return before == [_counted(engine) for engine in engines]


class _Counted(NamedTuple):
    """What stands still while everybody rests."""

    admitted: int
    ended: int
    queued: int
    running: int  # asked to stop or not
    asked: int
    live: int
    telling: int


def _counted(engine: Any) -> _Counted:
    counts = engine.counts()
    asked = counts.cancel_requested
    return _Counted(
        admitted=counts.admitted,
        ended=counts.succeeded + counts.failed + counts.cancelled,
        queued=counts.queued,
        running=counts.running + asked,
        asked=asked,
        live=counts.live_workers,
        telling=counts.telling,
    )


def _resters(engine: Any, now_ns: int) -> set[Any]:
    """The running tasks of ``engine`` that are at rest."""
    found = {
        task
        for rest in list(engine.config.crew.rests)
        for task in rest.tasks
        if task._engine is engine and task.running() and rest.holds(now_ns)
    }
    hand = engine.config.hand
    if hand is not None:
        # Bodies on virtual workers of this clock.
        for task, future in hand.flights():
            rests = getattr(future, "rests", None)
            if rests is not None and rests(engine.clock) and task.running():
                found.add(task)
    return found


def _all_taken(engine: Any, resters: set[Any], live: int) -> bool:
    """Nobody is there to claim another task: each worker runs one of ``resters``."""
    if engine.config.hand is not None:
        return bool(len(resters) >= engine.config.hand.max_in_flight)
    if engine.max_workers == 0:
        return False
    # What a caller runs itself (worker -1) keeps no worker.
    taken = [task for task in resters if (engine.view_of(task).worker or 0) >= 0]
    return len(taken) >= live


def restless(engines: list[Any], now_ns: int) -> list[Any]:
    """The tasks that keep ``resting`` from being true, for a message."""
    found = []
    for engine in engines:
        resters = _resters(engine, now_ns)
        for task in engine.tasks():
            if task.running():
                if task not in resters:
                    found.append(task)
            elif task.due_ns <= now_ns and not _all_taken(engine, resters, engine.max_workers):
                found.append(task)
    return found


# -- waits of whoever moves the clock ------------------------------------------------------------


def wait(
    engine: Any,
    attempt: Callable[[float | None], bool],
    limit_s: float | None,
    stands: Callable[[], bool],
) -> bool:
    """Wait by ``attempt(limit_s)`` for something to be brought about by ``engine``; ``stands()`` is
    True while that has not come.

    On the thread that moves a manual clock on, a wait without limit ends only if bodies that run
    now end it: once they all rest it is ``WouldDeadlock``.
    """
    clock = engine.clock
    if limit_s is not None or not is_mover(clock):
        return attempt(limit_s)
    check_limit = getattr(clock._movers.get(threading.get_ident()), "check_limit", None)
    while not attempt(_PATIENCE_S):
        # Its own bodies, on manual schedulers, wait here; nobody else would run their tasks.
        threaded = [other for other in engines_of(clock._attached()) if other.max_workers]
        # In this order: what has come may be told a moment later, see ``AwaitsSeveral``.
        if resting(threaded, clock.now_ns()) and stands():
            raise WouldDeadlock(
                "this wait could never end: it is on the thread that moves the clock, and every "
                "other body on that clock sleeps or waits too; give a time-out, or do not wait here"
            )
        if check_limit is not None:
            check_limit()
    return True


def is_mover(clock: Any) -> bool:
    """The calling thread moves the manual ``clock`` on, or carries out what a move brought."""
    return clock_kind(clock) == MANUAL and threading.get_ident() in clock._movers
