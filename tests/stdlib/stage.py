"""Tasks in any wanted state, for tests that make their futures by hand.

A pending task has its own scheduler in manual mode. While a ``Stage`` is entered, ``set_result``
and ``set_exception`` of a task (refused otherwise) tell its body how to end and run it by
``tick()`` on the calling thread, so that what the test sees is the real end of a real task.
"""

import contextlib
import threading
from typing import Any, Self
from unittest import mock

import duepool

_WATCHDOG_S = 60.0

CONSTANTS = (
    "PENDING_FUTURE",
    "RUNNING_FUTURE",
    "CANCELLED_FUTURE",
    "CANCELLED_AND_NOTIFIED_FUTURE",
    "EXCEPTION_FUTURE",
    "SUCCESSFUL_FUTURE",
)


class Ending:
    """A body that ends as it was told."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Stage(contextlib.ExitStack):
    """Makes the tasks; on exit lets all of them end."""

    def __enter__(self) -> Self:
        super().__enter__()
        # A scheduler is found by its engine: nothing here may keep a task alive.
        self._endings: dict[int, tuple[duepool.Scheduler, Ending]] = {}
        self.enter_context(mock.patch.object(duepool.Task, "set_result", self._set_result()))
        self.enter_context(mock.patch.object(duepool.Task, "set_exception", self._set_exception()))
        self.PENDING_FUTURE = self.create_future("PENDING")
        self.RUNNING_FUTURE = self.create_future("RUNNING")
        self.CANCELLED_FUTURE = self.create_future("CANCELLED")
        self.CANCELLED_AND_NOTIFIED_FUTURE = self.create_future("CANCELLED_AND_NOTIFIED")
        self.EXCEPTION_FUTURE = self.create_future("FINISHED", exception=OSError())
        self.SUCCESSFUL_FUTURE = self.create_future("FINISHED", result=42)
        return self

    def Future(self) -> duepool.Task:
        """A pending task."""
        scheduler, ending = duepool.Scheduler(0), Ending()
        task = scheduler.submit(ending)
        self._endings[id(task._engine)] = (scheduler, ending)
        self.callback(scheduler.shutdown_now)
        return task

    def create_future(
        self, state: str = "PENDING", exception: BaseException | None = None, result: Any = None
    ) -> duepool.Task:
        """A task in the state that ``concurrent.futures`` calls ``state``."""
        if state == "RUNNING":
            return self._running()
        task = self.Future()
        if state in ("CANCELLED", "CANCELLED_AND_NOTIFIED"):
            assert task.cancel()
        elif state == "FINISHED":
            if exception is None:
                task.set_result(result)
            else:
                task.set_exception(exception)
        else:
            assert state == "PENDING", state
        return task

    def _running(self) -> duepool.Task:
        scheduler = duepool.Scheduler(1)
        entered, release = threading.Event(), threading.Event()

        def body() -> None:
            entered.set()
            assert release.wait(_WATCHDOG_S)

        task = scheduler.submit(body)
        assert entered.wait(_WATCHDOG_S)
        self.callback(scheduler.shutdown)
        self.callback(release.set)
        return task

    def _set_result(self) -> Any:
        def set_result(task: duepool.Task, result: Any) -> None:
            scheduler, ending = self._endings[id(task._engine)]
            ending.value = result
            assert scheduler.tick() == 1

        return set_result

    def _set_exception(self) -> Any:
        def set_exception(task: duepool.Task, exception: BaseException) -> None:
            scheduler, ending = self._endings[id(task._engine)]
            ending.error = exception
            assert scheduler.tick() == 1

        return set_exception
