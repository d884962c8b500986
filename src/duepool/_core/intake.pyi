from collections.abc import Iterable
from typing import Any

from typing_extensions import disjoint_base

from duepool._core.lookup import Lookup

@disjoint_base
class Intake(Lookup):
    @property
    def handle(self) -> Any: ...
    def keep_names(self) -> None: ...
    def unhire(self, token: list[None]) -> int: ...
    def submit_as(
        self,
        name: str | None,
        kind: int,
        value: int,
        fn: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        shown: Any = None,
    ) -> Any: ...
    def submit_many_as(
        self, name: str | None, calls: Iterable[Any], delay: int, shown: Any = None
    ) -> list[Any]: ...
