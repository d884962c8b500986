"""Chooses the engine: the compiled one, or the plain-Python reference.

The reference stands in only where nothing compiled is installed. Any other failure to import the
compiled engine is a fault that must be seen, and propagates. A forced choice never falls back.
"""

import importlib
import importlib.util
import os
from types import ModuleType

CYTHON, PYTHON = "cython", "python"
_MODULES = {CYTHON: "duepool._core.engine", PYTHON: "duepool._reference.engine"}


def compiled_installed() -> bool:
    """True where the compiled engine is installed, whether or not it is the default."""
    try:
        return importlib.util.find_spec(_MODULES[CYTHON]) is not None
    except ModuleNotFoundError:  # not even its folder is there
        return False


def load(name: str) -> ModuleType:
    """The engine module ``"cython"`` or ``"python"``.

    Raises ``ImportError`` when the compiled one is asked for and is not installed.
    """
    if name == CYTHON and not compiled_installed():
        raise ImportError(
            "the compiled engine of duepool is not installed; install a wheel, or build from "
            "source with DUEPOOL_BUILD=require and a C compiler; engine='python' is the reference"
        )
    module = importlib.import_module(_MODULES[name])
    if name == PYTHON and module.other_depth is None and compiled_installed():
        # So that nested frames of both engines on one thread can be told apart.
        core = importlib.import_module(_MODULES[CYTHON])
        module.other_depth = core.frame_depth  # type: ignore[attr-defined]
    return module


def _wanted(engine: str | None) -> tuple[str | None, str]:
    """The forced engine (None: automatic) and what forced it."""
    if engine is not None:
        source = "engine="
    else:
        engine, source = os.environ.get("DUEPOOL_ENGINE") or None, "DUEPOOL_ENGINE"
    if engine is None or (source == "DUEPOOL_ENGINE" and engine == "auto"):
        return None, "auto"
    if not isinstance(engine, str):
        raise TypeError(f"engine must be 'cython', 'python' or None, not {engine!r}")
    if engine not in _MODULES:
        raise ValueError(f"{source.rstrip('=')} must be 'cython' or 'python', not {engine!r}")
    return engine, source


def default_name(engine: str | None = None) -> str:
    """The name of the engine that ``engine=`` (None: the environment, then automatic) leads to."""
    forced, _ = _wanted(engine)
    return forced or (CYTHON if compiled_installed() else PYTHON)


def choose(engine: str | None = None) -> ModuleType:
    """The engine module for ``engine=`` as ``Scheduler`` takes it.

    Raises ``ValueError`` for an unknown name and ``ImportError`` when a forced compiled engine is
    not installed.
    """
    return load(default_name(engine))


def explain() -> str:
    """One line that says which engine is the default, and why."""
    forced, source = _wanted(None)
    if forced is not None:
        return f"{forced} (forced by {source}={forced})"
    if compiled_installed():
        return "cython (the compiled engine is installed)"
    return (
        "python (nothing compiled is installed: this is the reference engine, correct but slow; "
        "build with DUEPOOL_BUILD=require and a C compiler for the fast one)"
    )
