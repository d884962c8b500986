"""The `duepool` command. It needs the extra ``cli`` (click and rich), as nothing else here does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["main"]

main: Callable[..., Any]
"""The command itself: a click group, or a function that says what to install."""

try:
    import click  # noqa: F401
    import rich  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("click", "rich"):
        raise
    _missing = error.name

    def _say_what_is_missing(*args: object, **options: object) -> None:
        """Say what to install; exit code 2."""
        sys.stderr.write(
            f"duepool: the command line needs {_missing}, which is not installed. "
            "Install it with: pip install duepool[cli]\n"
        )
        raise SystemExit(2)

    main = _say_what_is_missing
else:
    from duepool.cli import app

    main = app.main
