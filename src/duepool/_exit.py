"""What happens to schedulers when the interpreter leaves without a shutdown.

One hook, run when ``ThreadPoolExecutor`` runs its own: before the interpreter waits for non-daemon
threads. Admission closes everywhere, tasks not yet due are cancelled, due and running ones may
finish for at most ``exit_grace``; then what still runs is asked to stop and the process leaves.
"""

# ThreadPoolExecutor's hook is registered by this import; ours, registered later, runs before it.
import concurrent.futures.thread  # noqa: F401
import logging
import threading
import time
import weakref
from typing import Any

from ._values import CANCEL_LATER

logger = logging.getLogger("duepool")

# Handles, not engines: a worker thread keeps its handle alive, so that a scheduler that was dropped
# with work left is still found here.
_handles: "weakref.WeakKeyDictionary[Any, tuple[Any, float | None]]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_leaving = False


def leaving() -> bool:
    """True once the interpreter began to leave: new schedulers are closed from the start."""
    return _leaving


def register(handle: Any, crew: Any, exit_grace: float | None) -> None:
    """Close the engine behind ``handle`` (held weakly) at interpreter exit."""
    with _lock:
        _handles[handle] = (crew, exit_grace)


def _leave() -> None:
    global _leaving
    _leaving = True
    with _lock:
        entries = list(_handles.items())
    engines = []
    for handle, (crew, exit_grace) in entries:
        engine = None if handle.forked else handle.engine()
        if engine is not None:
            limit = engine.close(CANCEL_LATER)
            engines.append((engine, crew, exit_grace, limit))
    for engine, _, _, limit in engines:
        cancelled = engine.cancel_queued(limit)
        if cancelled:
            logger.info("interpreter exit: cancelled %d tasks that were not yet due", len(cancelled))
    start = time.monotonic()
    for engine, crew, exit_grace, _ in engines:
        if engine.max_workers == 0:
            continue
        limit_s = None if exit_grace is None else max(0.0, exit_grace - (time.monotonic() - start))
        if not crew.latch.wait(engine.is_quiet, limit_s):
            asked = engine.request_all()
            if asked:
                logger.info("interpreter exit: %d tasks still ran and were asked to stop", asked)


def _after_fork_in_child() -> None:
    global _lock
    # The parent's other threads do not exist here, so that nobody would ever release the old one.
    _lock = threading.Lock()


try:
    threading._register_atexit(_leave)  # type: ignore[attr-defined]
except RuntimeError:  # imported while the interpreter is leaving
    _leaving = True

import os  # noqa: E402

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
