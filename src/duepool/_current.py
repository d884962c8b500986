"""Which task's body runs on this thread, whatever engine it belongs to."""

import sys
from typing import Any

from . import _engine

_core: Any = _engine.load(_engine.CYTHON) if _engine.compiled_installed() else None


def current_task() -> Any:
    """The ``Task`` whose body runs on this thread, or None outside a body."""
    reference = sys.modules.get("duepool._reference.engine")
    if reference is not None:
        mark = reference.top_mark()
        # A reference frame is the innermost unless a compiled one was pushed after it.
        if mark is not None and (_core is None or mark == _core.frame_depth()):
            task = reference.current_task()
            return None if type(task) is reference.TaskBase else task
    if _core is None:
        return None
    task = _core.current_task()
    # A deadline (``_guards``) is no body, whatever is called when it strikes.
    return None if type(task) is _core.TaskBase else task
