from collections.abc import Iterable
from typing import Any

from typing_extensions import disjoint_base

from duepool._core.places import Places

@disjoint_base
class Intake(Places):
    @property
    def handle(self) -> Any: ...
    def keep_names(self) -> None: ...
    def unhire(self, token: list[None]) -> int: ...
    def submit_many_as(
        self,
        name: str | None,
        calls: Iterable[Any],
        delay: int,
        shown: Any = None,
        tenant: int = -1,
        mode: int = 0,
    ) -> Any: ...
