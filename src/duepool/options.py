"""``Scheduler.with_options``: the submit methods with a name, a tenant, limits in time and more."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from . import _arguments, _bodies, recurring
from ._values import AFTER, AT, ENTER, NOW, check_body, instant_ns, seconds_to_ns
from .overload import submit_async
from .recurring import Job
from .task import Task

if TYPE_CHECKING:
    from .scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class OptionSet:
    """Checked options. Durations in nanoseconds; None: not given."""

    name: str | None = None
    tenant: str | None = None
    timeout_ns: int | None = None
    start_by_ns: int | None = None
    interrupt: bool = False
    inherit: bool = False
    # What was inherited, once that was looked up.
    deadline_ns: int | None = None
    overlap: str = "skip"
    catch_up: str = "coalesce"
    on_error: str = "continue"
    max_instances: int | None = None

    @property
    def plain(self) -> bool:
        """True when a body needs nothing around it."""
        return (
            self.timeout_ns is None
            and self.start_by_ns is None
            and not self.interrupt
            and not self.inherit
            and self.deadline_ns is None
        )


PLAIN = OptionSet()


class Options:
    """The ``submit`` methods of a scheduler, with options; see ``Scheduler.with_options``."""

    __slots__ = ("_options", "_scheduler", "_tenant")

    def __init__(self, scheduler: "Scheduler", options: OptionSet) -> None:
        self._scheduler = scheduler
        self._options = options
        tenants: dict[str, int] = scheduler._engine.config.face.tenants
        # A tenant without a quota has no bound of its own.
        self._tenant = -1 if options.tenant is None else tenants.get(options.tenant, -1)

    def with_options(self, **options: Any) -> "Options":
        """These options with others changed or added."""
        changed = _arguments.read_options(options)
        return Options(self._scheduler, replace(self._options, **changed))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``Scheduler.submit``."""
        return self._as(NOW, 0, fn, args, kwargs)

    def submit_after(
        self, delay: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """As ``Scheduler.submit_after``."""
        self._check(fn)
        return self._as(AFTER, seconds_to_ns(delay, "delay"), fn, args, kwargs, delay)

    def submit_at_ns(
        self, due_ns: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """As ``Scheduler.submit_at_ns``."""
        self._check(fn)
        return self._as(AT, instant_ns(due_ns, "due_ns"), fn, args, kwargs)

    def submit_at(self, when: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``Scheduler.submit_at``."""
        self._check(fn)
        return self._scheduler._submit_at(self, when, fn, args, kwargs)

    def submit_many(self, calls: Iterable[Any], delay: Any = 0) -> list[Task]:
        """As ``Scheduler.submit_many``."""
        delay_ns = seconds_to_ns(delay, "delay")
        engine = self._scheduler._engine
        options = self._options
        if not options.plain:
            tasks = _bodies.submit_many(engine, options, self._tenant, calls, delay_ns, delay)
        else:
            tasks = engine.submit_many_as(options.name, calls, delay_ns, delay, self._tenant)
        return cast("list[Task]", tasks)

    async def submit_async(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``Scheduler.submit_async``."""
        task = await submit_async(self._scheduler._engine, self, fn, args, kwargs)
        return cast(Task, task)

    def repeat(self, trigger: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """As ``Scheduler.repeat``, with ``overlap``, ``catch_up``, ``on_error`` and
        ``max_instances`` as given."""
        self._check(fn)
        return recurring.repeat(
            self._scheduler._engine, trigger, fn, args, kwargs, self._options, self._tenant
        )

    def _at_this_instant(self) -> "Options":
        """The same, with what is inherited from the calling body looked up now."""
        options = self._options
        if not options.inherit:
            return self
        end_ns = _bodies.inherited_deadline(self._scheduler._engine)
        return Options(self._scheduler, replace(options, inherit=False, deadline_ns=end_ns))

    def _check(self, fn: Any) -> None:
        check_body(fn, self._scheduler._engine.config.coroutines)

    def _as(
        self,
        kind: int,
        value: int,
        fn: Any,
        args: Any,
        kwargs: Any,
        shown: Any = None,
        mode: int = ENTER,
    ) -> Task:
        engine = self._scheduler._engine
        options = self._options
        if not options.plain:
            task = _bodies.submit(
                engine, options, self._tenant, kind, value, fn, args, kwargs, shown, mode
            )
        else:
            task = engine.submit_as(
                options.name, kind, value, fn, args, kwargs or None, shown, self._tenant, mode
            )
        return cast(Task, task)

    def __repr__(self) -> str:
        given = [
            f"{key}={value!r}"
            for key in OptionSet.__slots__
            if (value := getattr(self._options, key)) != getattr(PLAIN, key)
        ]
        return f"<Options {', '.join(given) or 'none'} of {self._scheduler!r}>"
