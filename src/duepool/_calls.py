"""A body on its way through an executor, and what it becomes in another process.

In this process a call runs *framed*: in the submitter's context, with its task as
``current_task()``. Pickled it is the bare body, which needs nothing of this package where it runs;
with ``wrap=`` it is the body in its wrappers, which see the task's view there.

Guarantees: a call that was recalled before it began never runs, and one that began is not recalled,
whichever thread is first (``_fate``, one atomic step). Once its task has ended it runs no more and
holds nothing.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from functools import partial
from operator import itemgetter
from pickle import PicklingError
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from ._outcome import INTERNAL_CODES, internal
from ._values import TaskState
from .errors import CancelledError, CancelRequested

if TYPE_CHECKING:
    from .executors import Hand

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a body returned, or raised."""

_BEGUN, _RECALLED = 1, 2
CANCELLED = (CancelledError, asyncio.CancelledError)
"""What a future that was cancelled raises."""

PATIENCE = 100  # how often a step is begun again that an exception cut short


class Call:
    """One body with its keyword arguments; the executor calls it with the positional ones.

    The keyword arguments are bound here, since the ``submit`` of an executor may take some for its
    own.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_fate",
        "_fn",
        "_hand",
        "_kwargs",
        "_task",
        "attached",
        "future",
        "orphan",
        "outcome",
    )

    def __init__(
        self,
        hand: "Hand",
        task: Any,
        fn: Callable[..., Any],
        kwargs: dict[str, Any],
        context: Context | None,
    ) -> None:
        self._hand = hand
        self._task: Any = task
        self._fn: Any = fn
        self._kwargs = kwargs
        self._context = context
        self._fate: dict[None, int] = {}
        # What the executor gave for it.
        self.future: Any = None
        # The future will say how it ends.
        self.attached = False
        # It began, and no future will ever say how it ends: it does so itself.
        self.orphan = False
        # How it ended in this process. Stored before the look at ``orphan``, which is set before
        # the look at this: one of the two sees the other.
        self.outcome: Outcome | None = None

    @property
    def __name__(self) -> str:
        # Shown by executors that name what they run.
        return getattr(self._fn, "__name__", None) or type(self._fn).__name__

    def __repr__(self) -> str:
        return f"<{self.__name__}, the body of {self._task!r}>"

    @internal
    def __call__(self, *args: Any) -> Any:
        """Run the body here. For a coroutine function: give its coroutine, whose steps run framed,
        to an executor that says it runs such."""
        hand, task, fn, kwargs = self._hand, self._task, self._fn, self._kwargs
        value: Any = None
        outcome: Outcome | None = None
        try:
            if task is None or self._fate.setdefault(None, _BEGUN) is _RECALLED:
                raise CancelledError("its task has ended: the body will not run")
            if task.state == TaskState.CANCEL_REQUESTED:
                raise CancelRequested("the task was asked to stop before its body began")
            if hand.wraps:
                value = self.step(through_wraps, (hand.wraps, task, fn, args, kwargs), {})
            else:
                value = self.step(fn, args, kwargs)
            if hand.coroutines and isinstance(value, Coroutine):
                return Steps(self, value)
            outcome = (value, None)
            return value
        except BaseException as error:
            outcome = (None, error)
            raise
        finally:
            # Nothing is called between the end of the body and this, so that no signal comes
            # between: who has begun and does not run has an outcome.
            if outcome is not None:
                self.outcome = outcome
                if self.orphan:
                    hand.land(task, self, *outcome)
            # A traceback's frames lead back to this one: it must hold nothing of the task.
            del self, hand, task, fn, args, kwargs, value, outcome

    @internal
    def step(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``fn`` framed: as the task's body, in the submitter's context."""
        hand, task, context = self._hand, self._task, self._context
        here = hand.here.tasks
        depth = len(here)
        try:
            here.append(task)
            if context is None:
                return hand.module.framed(task, fn, args, kwargs)
            return context.run(hand.module.framed, task, fn, args, kwargs)
        finally:
            del here[depth:]
            del self, hand, task, context, fn, args, kwargs, here

    def settle(self, outcome: Outcome) -> None:
        """Its coroutine has ended."""
        self.outcome = outcome
        if self.orphan:
            self._hand.land(self._task, self, *outcome)

    @property
    def begun(self) -> bool:
        """Its body has begun, in this process."""
        return self._fate.get(None) is _BEGUN

    def recall(self) -> bool:
        """True when it has not begun, in this process; then it never will."""
        return self._fate.setdefault(None, _RECALLED) is _RECALLED

    def ask(self, task: Any) -> None:
        """Its task was asked to stop: so is the executor. What the future raises is raised here."""
        future = self.future
        if future is None or task.done():
            return
        asked = False
        cut: BaseException | None = None
        for _ in range(PATIENCE):
            try:
                if not asked:
                    asked = True
                    future.cancel()
                if cut is not None and future.cancelled():
                    # An interrupt may have kept it from telling so.
                    self._hand.done(task, self, future)
                break
            except BaseException as error:
                cut = error if cut is None else cut
        try:
            if cut is not None:
                raise cut
        finally:
            del cut

    def clear(self) -> None:
        """The task has ended: an executor that keeps the call keeps nothing else."""
        self._task = self._fn = self._context = self.future = self.outcome = None
        self._kwargs = {}

    def __reduce__(self) -> Any:
        fn, kwargs, wraps = self._fn, self._kwargs, self._hand.wraps
        if self._task is None:
            raise PicklingError("its task has ended: the body will not run")
        if wraps:
            view = self._task._engine.view_of(self._task)
            return partial(wrapped, wraps, view, fn, **kwargs).__reduce__()
        if kwargs:
            return partial(fn, **kwargs).__reduce__()
        return itemgetter(0), ((fn,),)

    def __dask_tokenize__(self) -> Any:
        # Dask takes calls with the same token for one and runs them once: each task has its own.
        return "duepool", os.getpid(), os.urandom(16).hex()


class Steps(Coroutine[Any, Any, Any]):
    """The coroutine of a body, each step of which runs framed."""

    __slots__ = ("_call", "_inner")

    def __init__(self, call: Call, inner: Coroutine[Any, Any, Any]) -> None:
        self._call = call
        self._inner = inner

    @internal
    def send(self, value: Any) -> Any:
        """As for the coroutine."""
        return self._step(self._inner.send, value)

    @internal
    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any:
        """As for the coroutine."""
        error = kind if value is None else value
        if traceback is not None and isinstance(error, BaseException):
            error = error.with_traceback(traceback)
        return self._step(self._inner.throw, error)

    def close(self) -> None:
        """As for the coroutine."""
        self._inner.close()

    def __await__(self) -> Iterator[Any]:  # type: ignore[override]
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    @internal
    def __next__(self) -> Any:
        return self.send(None)

    def __getattr__(self, name: str) -> Any:
        # cr_frame and the like, for those who look at what runs.
        return getattr(self._inner, name)

    @internal
    def _step(self, method: Callable[[Any], Any], value: Any) -> Any:
        call = self._call
        outcome: Outcome | None = None
        try:
            return call.step(method, (value,), {})
        except StopIteration as stop:
            outcome = (stop.value, None)
            raise
        except BaseException as error:
            outcome = (None, error)
            raise
        finally:
            if outcome is not None:
                call.settle(outcome)
            del self, call, method, value, outcome


@internal
def through_wraps(
    wraps: tuple[Callable[..., Any], ...],
    task: Any,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a body through wrappers, the outermost first."""
    call = partial(fn, *args, **kwargs)
    for wrapper in reversed(wraps):
        call = partial(wrapper, task, call)
    try:
        return call()
    finally:
        del wraps, task, fn, args, kwargs, call


@internal
def wrapped(
    wraps: tuple[Callable[..., Any], ...], view: Any, fn: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """A body in its wrappers, in another process: they see the view of its task."""
    return through_wraps(wraps, view, fn, args, kwargs)


def bodys_part(traceback: TracebackType | None, module: Any) -> TracebackType | None:
    """What is left of a traceback without the frames of the executor and ours that lead to the
    body; all of it where the body did not run in this process."""
    framed = getattr(module.framed, "__code__", None)
    at, found = traceback, None
    while at is not None:
        code = at.tb_frame.f_code
        if code in INTERNAL_CODES or code is framed:
            found = at.tb_next
        elif found is not None:
            break
        at = at.tb_next
    return found or traceback


def interrupts(error: BaseException) -> bool:
    """A Ctrl-C goes on to whoever is interrupted; what a callback raised on a thread of the
    executor has been logged, and would harm that thread."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )


def outcome_of(future: Any, cut: BaseException | None) -> tuple[Any, BaseException | None]:
    """What a future that is done holds: a value, or an error. ``cut``: it was asked before, and
    something was raised: perhaps by a signal handler, perhaps by the future itself."""
    error: Any = None
    try:
        error = future.exception(0)
        if error is None:
            return future.result(0), None
        if not isinstance(error, BaseException):
            error = TypeError(f"{future!r} has an exception that is none: {error!r}")
        return None, error
    except CancelledError as cancelled:
        return None, cancelled.with_traceback(None)
    except BaseException as raised:
        if cut is None:
            raise
        return None, raised
    finally:
        del future, cut, error
