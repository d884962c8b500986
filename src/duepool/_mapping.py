"""``Executor.map`` on a scheduler: lazily, within its capacity.

Guarantees: results come in order, each released as it is yielded. No more than ``buffersize`` tasks
(and never more than ``capacity``) are out at any moment, that is, submitted with a result that was
not yielded yet. A submission here never asks the overload policy: where there is no room it waits
until a result is taken, and where nothing is out, in line for room.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import _arguments
from ._line import CAPACITY, keep
from ._values import AHEAD, NOW, TRY, check_body, timeout_s

_NOTHING: Any = object()


def mapped(
    engine: Any, fn: Any, iterables: Any, timeout: Any, chunksize: Any, buffersize: Any
) -> Iterator[Any]:
    """The results of ``fn`` for each group of arguments, in order; see ``Scheduler.map``."""
    check_body(fn, engine.config.coroutines)
    limit_s = timeout_s(timeout)
    chunk = _arguments.integer(chunksize, "chunksize", 1, "groups of arguments in one task")
    window = _window(buffersize, engine.config.capacity)
    end = None if limit_s is None else time.monotonic() + limit_s
    groups: Iterator[Any] = zip(*iterables, strict=False)
    # Own workers gain nothing by it, and a coroutine function cannot be called in a batch.
    if chunk > 1 and engine.config.hand is not None and not engine.config.coroutines:
        batches = ((fn, batch) for batch in _batches(groups, chunk))
        results = Results(engine, run_batch, batches, end, window, batched=True)
    else:
        results = Results(engine, fn, groups, end, window, batched=False)
    try:
        results._fill()
    except BaseException:
        results.close()
        raise
    return results


def _window(buffersize: Any, capacity: int | None) -> float:
    """How many tasks may be out."""
    window = float("inf") if capacity is None else capacity
    if buffersize is None:
        return window
    if not isinstance(buffersize, int) or isinstance(buffersize, bool):
        raise TypeError(
            f"buffersize must be an integer or None, not {type(buffersize).__name__} {buffersize!r}"
        )
    if buffersize < 1:
        raise ValueError(
            f"buffersize must be None or > 0 (tasks whose results were not taken), got {buffersize}"
        )
    return min(window, buffersize)


def _batches(groups: Iterator[Any], size: int) -> Iterator[tuple[Any, ...]]:
    while batch := tuple(itertools.islice(groups, size)):
        yield batch


def run_batch(fn: Callable[..., Any], batch: tuple[Any, ...]) -> list[Any]:
    """``fn`` for each group of ``batch``; a function of a module, so that it can be pickled."""
    return [fn(*group) for group in batch]


class Results(Iterator[Any]):
    """The iterator that ``map`` returns. To be used by one thread at a time.

    ``close()``, and dropping it half-way, cancels what has not been yielded; so does an exception,
    which is raised at its place and ends the iteration. Dropped before the first result was asked
    for, it leaves what it has submitted to run, as in the standard library.
    """

    _started = False  # a result was asked for

    def __init__(
        self, engine: Any, fn: Any, groups: Iterator[Any], end: float | None, window: float,
        batched: bool,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._fn = fn
        self._groups: Iterator[Any] | None = groups
        # Drawn from the iterables, and not submitted yet.
        self._drawn: Any = _NOTHING
        self._tasks: deque[Any] = deque()
        # The task of a submission that is under way.
        self._fresh: list[Any] = []
        # Results of a batch that are still to be yielded, the last one first.
        self._rest: list[Any] = []
        # What the iterables, or a submission, raised; its place is after what is out.
        self._failure: BaseException | None = None
        self._end = end
        self._window = window
        self._batched = batched

    def __next__(self) -> Any:
        if self._rest:
            return self._rest.pop()
        self._started = True
        try:
            self._refill()
            if not self._tasks:
                self._wait_in_line()
            result = self._first_result()
            self._refill()
        except BaseException:
            self.close()
            raise
        if not self._batched:
            return result
        self._rest = result
        self._rest.reverse()
        return self._rest.pop()

    def close(self) -> None:
        """Cancel what was not yielded, and end the iteration."""
        self._groups, self._drawn, self._failure = None, _NOTHING, None
        self._rest.clear()
        interrupt: BaseException | None = None
        for tasks in (self._tasks, self._fresh):
            while tasks:
                try:
                    if tasks[0] is not None:
                        tasks[0].cancel()
                except RuntimeError:  # in a fork the tasks are the parent's
                    pass
                except BaseException as error:
                    if interrupt is None:
                        interrupt = error
                        continue  # perhaps it came before the cancel
                del tasks[0]
        if interrupt is not None:
            raise interrupt

    def __del__(self) -> None:
        if self._started:
            self.close()

    def _draw(self) -> bool:
        """Have a group of arguments ready; False when the iterables are exhausted."""
        if self._drawn is _NOTHING and self._groups is not None:
            self._drawn = next(self._groups, _NOTHING)
            if self._drawn is _NOTHING:
                self._groups = None
        return self._drawn is not _NOTHING

    def _submit(self, mode: int) -> bool | None:
        """Submit the group that was drawn; None where there is no room."""
        if keep(
            self._fresh,
            self._engine.submit_as,
            None, NOW, 0, self._fn, self._drawn, None, None, CAPACITY, mode,
        ) is None:  # fmt: skip
            self._fresh.clear()
            return None
        self._tasks.extend(self._fresh)
        self._fresh.clear()
        self._drawn = _NOTHING
        return True

    def _fill(self) -> None:
        """Submit as many as there is room for."""
        while len(self._tasks) < self._window and self._draw():
            if self._submit(TRY) is None:
                return

    def _refill(self) -> None:
        """The same between results: what fails is raised when what is out has been yielded."""
        if self._failure is None:
            try:
                self._fill()
            except Exception as error:
                self._failure = error
                self._groups, self._drawn = None, _NOTHING

    def _wait_in_line(self) -> None:
        """Nothing is out: submit the next as soon as there is room."""
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
            if not self._draw():
                raise StopIteration
            rest = None if self._end is None else max(0.0, self._end - time.monotonic())
            room = self._engine.config.face.room
            if not room.wait(self._engine, CAPACITY, 1, rest, lambda: self._submit(AHEAD)):
                raise TimeoutError("map() found no room for its next task within its time-out")
        finally:
            del failure

    def _first_result(self) -> Any:
        rest = None if self._end is None else self._end - time.monotonic()
        # Removed first: a result that is yielded must not be kept alive by its handle.
        task = self._tasks.popleft()
        try:
            return task.result(rest)
        finally:
            try:
                task.cancel()
            except RuntimeError:  # in a fork
                pass
            del task
