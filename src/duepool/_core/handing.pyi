from types import EllipsisType
from typing import Any

from duepool._core.running import Running

class Handing(Running):
    def conclude(self, task: Any, result: Any, error: BaseException | None) -> None: ...
    def submit_as(
        self,
        name: str | None,
        kind: int,
        value: int,
        fn: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        shown: Any = None,
        tenant: int = -1,
        mode: int = 0,
        context: Any | EllipsisType = ...,
    ) -> Any: ...
