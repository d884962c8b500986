"""What the face knows of one scheduler and the engine does not.

It hangs on the engine's configuration, so that whoever has a task finds it, and holds neither the
engine nor the scheduler: a dropped scheduler must not be kept alive from here.
"""

from collections.abc import Callable
from typing import Any

from ._guards import Guards
from ._room import Room
from ._wall import Wall
from .recurring import Book


class Face:
    """The parts of one scheduler around its engine; each is made when it is first needed."""

    def __init__(
        self,
        *,
        clock: Any,
        wall_clock: Any,
        module: Any,
        manual: bool,
        tenants: dict[str, int],
        wraps: tuple[Callable[[Any, Callable[[], Any]], Any], ...],
        hand: Any,
        thread_factory: Callable[..., Any] | None,
        prefix: str,
    ) -> None:
        # By the name of a tenant, its index in ``EngineConfig.quotas``.
        self.tenants = tenants
        self.tenant_names = list(tenants)
        self.wraps = wraps
        self.hand = hand
        self.thread_factory = thread_factory
        # What the names of the scheduler's threads begin with.
        self.prefix = prefix
        # Deadlines will be met: the guards are there, and their thread, if they have one.
        self.guarded = False
        self.room = Room()
        self.book = Book()
        self._clock = clock
        self._wall_clock = wall_clock
        self._module = module
        self._manual = manual
        self._made: dict[str, Any] = {}
        # A wall that goes with the scheduler's clock counts from here.
        self._wall = Wall(clock, wall_clock)

    @property
    def wall(self) -> Wall:
        """The wall clock, and the tasks whose due time is an instant of it."""
        return self._wall

    @property
    def has_guards(self) -> bool:
        """True once a deadline was set that is not a task's due time."""
        return "guards" in self._made

    @property
    def guards(self) -> Guards:
        """What is to happen at an instant even while every worker is busy."""
        made = self._made.get("guards")
        if made is None:
            # Two threads may both make one; one of them stays, the other has nothing to do.
            fresh = Guards(
                self._clock, self._module, self._manual, self.thread_factory, self.prefix
            )
            made = self._made.setdefault("guards", fresh)
        return made  # type: ignore[no-any-return]
