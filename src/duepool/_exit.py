"""What happens to schedulers when the interpreter leaves without a shutdown.

One hook, run when ``ThreadPoolExecutor`` runs its own: before the interpreter waits for non-daemon
threads. Admission closes everywhere, jobs and tasks not yet due are cancelled, due and running ones
may finish for at most ``exit_grace``; then what still runs is asked to stop and the process leaves.
"""

# ThreadPoolExecutor's hook is registered by this import; ours, registered later, runs before it.
import concurrent.futures.thread  # noqa: F401
import logging
import math
import threading
import time
import weakref
from typing import Any

from . import _outcome
from ._values import CANCEL_LATER

logger = logging.getLogger("duepool")

# Crews, not engines: a worker thread keeps its crew alive, so that a scheduler that was dropped
# with work left is still found here.
# A plain dict, changed by single steps: a signal handler or a finalizer may make a scheduler while
# another is being made, and would meet a lock here.
_crews: dict[int, "weakref.ref[Any]"] = {}
_leaving = False
# The modules of injected executors whose own hooks ours runs before.
_before: set[str] = set()


def leaving() -> bool:
    """True once the interpreter began to leave: new schedulers are closed from the start."""
    return _leaving


def register(crew: Any) -> None:
    """Close the engine of ``crew`` (held weakly) at interpreter exit."""
    key = id(crew)
    _crews[key] = weakref.ref(crew, lambda _: _crews.pop(key, None))


def run_before(module: str) -> None:
    """Run the hook before those that ``module``, an executor's, has registered by now. Hooks run in
    reverse order, and what was imported after this package would shut its executors down first,
    while they are still handed bodies."""
    if module not in _before:
        _before.add(module)
        try:
            threading._register_atexit(_leave)  # type: ignore[attr-defined]
        except RuntimeError:  # the interpreter is leaving
            pass


def _leave() -> None:
    global _leaving
    if _leaving:
        return
    _leaving = True
    _outcome.leaving = True
    engines = []
    for reference in list(_crews.values()):
        crew = reference()
        if crew is None or crew.handle.forked:
            continue
        engine = crew.handle.engine()
        if engine is not None:
            engines.append((engine, crew, engine.close(CANCEL_LATER)))
    for engine, _, limit in engines:
        jobs = engine.config.face.book.close()
        engine.cancel_runs()
        if jobs:
            logger.info("interpreter exit: ended %d jobs", jobs)
        cancelled = engine.cancel_queued(limit)
        if cancelled:
            logger.info(
                "interpreter exit: cancelled %d tasks that were not yet due", len(cancelled)
            )
    start = time.monotonic()
    for engine, crew, _ in engines:
        if engine.max_workers == 0:
            continue
        exit_grace = crew.exit_grace
        limit_s = None if exit_grace is None else max(0.0, exit_grace - (time.monotonic() - start))
        try:
            quiet = crew.latch.wait(engine.is_quiet, limit_s)
        except KeyboardInterrupt:  # whoever is in a hurry gets no grace
            quiet, start = False, -math.inf
        if not quiet:
            asked = engine.request_all()
            if asked:
                logger.info("interpreter exit: %d tasks still ran and were asked to stop", asked)
            if engine.config.hand is not None:
                engine.config.hand.halt()


try:
    threading._register_atexit(_leave)  # type: ignore[attr-defined]
except RuntimeError:  # imported while the interpreter is leaving
    _leaving = True
