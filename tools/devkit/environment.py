"""The project's own environment: made when missing, renewed when its inputs changed.

What was done is written down with a hash of what it was done from: in ``.venv/cp311/duepool.json``
for the installed packages, in ``build/cp311.json`` for the compiled modules. A set-up with nothing
to do reads these and some source files, and starts no process.

The package is installed in place (``pip install -e``, which compiles nothing here), and its
extension modules are built in place; their file names carry the Python they are for, so that
several Pythons share one tree.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from devkit import machine

ROOT = Path(__file__).resolve().parents[2]
TAG = "cp{}{}{}".format(
    *sys.version_info[:2], "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
)
VENV = ROOT / ".venv" / TAG
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
CORE = ROOT / "src" / "duepool" / "_core"


class SetupError(Exception):
    """The set-up cannot go on; the message says why."""


def prepare(extras: set[str], groups: set[str]) -> None:
    """Make the environment fit, with these extras and dependency groups installed."""
    lacks = machine.missing()
    if lacks:
        raise SetupError(machine.explain(lacks))
    with _lock():
        _make_venv()
        _install(extras, groups)
        _build()


def environ() -> dict[str, str]:
    """The environment variables for what runs in the environment."""
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"DUEPOOL_BUILD": "require", "PATH": path, "VIRTUAL_ENV": str(VENV)}


def digest(paths: Iterable[Path], *more: object) -> str:
    """A hash of the files' names and contents, and of whatever else is given."""
    state = hashlib.sha256(repr(more).encode())
    for path in sorted(paths):
        state.update(f"\0{path.relative_to(ROOT).as_posix()}\0".encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def provenance() -> list[Any]:
    """What the environment was made from: the interpreter, and pyproject's requirements."""
    stamp = read_stamp(VENV / "duepool.json")
    return [stamp.get("interpreter"), stamp.get("key")]


def sources(*patterns: str) -> list[Path]:
    """The compiled engine's files of these kinds."""
    return [path for pattern in patterns for path in CORE.glob(pattern)]


def read_stamp(path: Path) -> dict[str, Any]:
    """What was written down there; empty when that is nothing or unreadable."""
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(path: Path, stamp: dict[str, Any]) -> None:
    """Write it down, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(stamp, indent=1, sort_keys=True), encoding="utf-8")
    draft.replace(path)


def say(message: str) -> None:
    """A line about the set-up."""
    print(f"dev: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One set-up at a time in this tree."""
    (ROOT / ".venv").mkdir(exist_ok=True)
    with open(ROOT / ".venv" / "lock", "a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # it tries for ten seconds only
                    say("waiting for another set-up in this tree")
        else:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another set-up in this tree")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_venv() -> None:
    interpreter = [os.path.realpath(sys.base_prefix), sys.version]
    stamp = VENV / "duepool.json"
    if PYTHON.is_file() and read_stamp(stamp).get("interpreter") == interpreter:
        return
    fault = machine.compiler_fault()
    if fault:
        raise SetupError(f"{machine.explain([machine.COMPILER])}\n     It says:\n{fault}")
    say(f"making .venv/{TAG} with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(VENV)], "make the virtual environment")
    write_stamp(stamp, {"interpreter": interpreter})


def _install(extras: set[str], groups: set[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    key = digest(
        [], *(project.get(table) for table in ("build-system", "project", "dependency-groups"))
    )
    path = VENV / "duepool.json"
    stamp = read_stamp(path)
    wanted = {f"extra {extra}" for extra in extras} | {f"group {group}" for group in groups}
    if stamp.get("key") == key and wanted <= set(stamp["installed"]):
        return
    say(f"installing {', '.join(sorted(wanted)) or 'the build tools'} into .venv/{TAG}")
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    tools = [*project["build-system"]["requires"]]
    for group in sorted(groups):
        tools += _group(project["dependency-groups"], group)
    _run([*pip, *tools], "install the tools")
    here = f".[{','.join(sorted(extras))}]" if extras else "."
    _run(
        [*pip, "--no-build-isolation", "--editable", here],
        "install the package",
        DUEPOOL_BUILD="none",
    )
    if stamp.get("key") == key:
        wanted |= set(stamp["installed"])
    write_stamp(path, stamp | {"key": key, "installed": sorted(wanted)})


def _group(groups: dict[str, list[Any]], name: str) -> list[str]:
    requirements: list[str] = []
    for entry in groups[name]:
        requirements += (
            [entry] if isinstance(entry, str) else _group(groups, entry["include-group"])
        )
    return requirements


def _build() -> None:
    """Compile what changed; all of it when the way of compiling did."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    variables = [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
    how = digest(
        [ROOT / "setup.py"],
        provenance(),
        [sysconfig.get_config_var(name) for name in ("CC", "CFLAGS", "LDSHARED")],
        variables,
    )
    what = digest(sources("*.pyx", "*.pxd", "*.h"))
    path = ROOT / "build" / f"{TAG}.json"
    stamp = read_stamp(path)
    modules = [source.with_name(source.stem + suffix) for source in sources("*.pyx")]
    if (
        stamp.get("how") == how
        and stamp.get("what") == what
        and all(module.is_file() for module in modules)
    ):
        return
    say(f"compiling for {TAG}")
    command = [str(PYTHON), "setup.py", "--quiet", "build_ext", "--inplace"]
    if stamp.get("how") != how:
        command.append("--force")
    _run(command, "compile the engine", DUEPOOL_BUILD="require")
    for stale in set(CORE.glob(f"*{suffix}")) - set(modules):
        stale.unlink()
    write_stamp(path, {"how": how, "what": what})


def _run(command: list[str], purpose: str, **variables: str) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environ() | variables, check=False)
    if done.returncode:
        raise SetupError(f"dev: could not {purpose} (exit code {done.returncode}); see above")
