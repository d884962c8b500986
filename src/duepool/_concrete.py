"""One concrete class for each engine: the engine's base right before the face in the order of
methods, so that the hot ones are the engine's own."""

from typing import Any, cast

from ._interrupt import held_back

_schedulers: dict[tuple[type, str], type] = {}
_tasks: dict[str, type] = {}


def scheduler_type(cls: type, face: type, module: Any) -> type:
    """``cls`` (``face`` or a subclass of it) on the engine of ``module``."""
    key = (cls, module.NAME)
    made = _schedulers.get(key)
    if made is None:
        body: dict[str, Any] = {}
        if cls is face:
            bases: tuple[type, ...] = (module.SchedulerBase, face)
            # In an interruptible body: what runs in there is not its own.
            body["tick"] = held_back(module.SchedulerBase.tick, face)
        else:
            bases = (cls, scheduler_type(face, face, module))
        body |= {"__doc__": cls.__doc__, "__module__": cls.__module__, "_engine_module": module}
        made = _schedulers.setdefault(key, type(cls.__name__, bases, body))
    return made


def task_type(face: type, module: Any) -> type:
    """The task type of the engine of ``module``."""
    made = _tasks.get(module.NAME)
    if made is None:
        body = {"__slots__": (), "__doc__": face.__doc__, "__module__": face.__module__}
        made = _tasks.setdefault(module.NAME, type(face.__name__, (module.TaskBase, face), body))
    return made


def module_of(scheduler: Any) -> Any:
    """The engine module of a scheduler of a concrete class."""
    return type(scheduler)._engine_module


def new(cls: type) -> Any:
    """A new scheduler of a concrete class."""
    base = cast(Any, cls)._engine_module.SchedulerBase
    return base.__new__(cls)
