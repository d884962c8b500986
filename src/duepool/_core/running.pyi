from collections.abc import Callable
from typing import Any, final

from duepool._core.ending import Ending

__pyx_capi__: dict[str, object]

def current_task() -> Any: ...
def frame_depth() -> int: ...
def framed(
    task: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any: ...

@final
class Seat:
    def __new__(cls, index: int) -> Seat: ...

class Running(Ending):
    def tick(self) -> int: ...
