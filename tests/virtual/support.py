"""What the tests of virtual time share."""

import threading
from collections.abc import Callable
from typing import Any

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

SHORT = 0.3
"""Real seconds given to a run that is to give up."""


def nothing(*_args: Any) -> None:
    """A body that does nothing."""


class Aside:
    """A call on a daemon thread of its own, whose end is waited for with a deadline."""

    def __init__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._outcome: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                self._outcome.append((True, call(*args, **kwargs)))
            except BaseException as error:
                self._outcome.append((False, error))

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def result(self, limit_s: float = SOON) -> Any:
        """What the call returned or raised; fails when it does not end in ``limit_s`` seconds."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), f"the call did not end in {limit_s} s"
        good, value = self._outcome[0]
        if not good:
            raise value
        return value


class Diary:
    """What happened when: entries (instant of the clock in seconds, what)."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.entries: list[tuple[float, Any]] = []

    def __call__(self, what: Any = None) -> None:
        """Write down that ``what`` happens now; a body as it is."""
        self.entries.append((self._clock.now_ns() / 1e9, what))

    @property
    def instants(self) -> list[float]:
        """The instants alone."""
        return [at for at, _ in self.entries]
