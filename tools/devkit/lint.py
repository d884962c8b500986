"""Everything that looks at the source without running a test."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devkit import environment
from devkit.environment import PYTHON, ROOT

_DONE = ROOT / "build" / f"lint-{environment.TAG}.json"
_LIMIT_S = 300


@dataclass(frozen=True)
class Check:
    """A command that must succeed; with ``inputs``, it runs again only when one of them changed."""

    name: str
    command: list[str]
    inputs: tuple[Path, ...] = ()

    def key(self) -> str:
        """What a success stands for: the inputs, the command, the environment."""
        return environment.digest(self.inputs, self.command, environment.provenance())


@dataclass(frozen=True)
class Outcome:
    """How a check ended: what it printed counts when it failed."""

    check: Check
    ok: bool
    seconds: float
    output: str = ""
    cached: bool = False
    key: str = ""


def run() -> int:
    """Run every check, two at a time; 1 if any failed."""
    done = environment.read_stamp(_DONE)
    with ThreadPoolExecutor(2) as pool:
        outcomes = []
        for outcome in pool.map(lambda check: _run(check, done), _checks()):
            outcomes.append(outcome)
            took = "unchanged" if outcome.cached else f"{outcome.seconds:.1f} s"
            print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.check.name} ({took})", flush=True)
    environment.write_stamp(_DONE, {o.check.name: o.key for o in outcomes if o.ok and o.key})
    failed = [outcome for outcome in outcomes if not outcome.ok]
    for outcome in failed:
        print(f"\n--- {outcome.check.name}: {' '.join(outcome.check.command)}")
        print(outcome.output.strip())
    if failed:
        print(f"\nlint: {', '.join(outcome.check.name for outcome in failed)} failed")
    return 1 if failed else 0


def _checks() -> list[Check]:
    """The slow ones first."""
    cython = sorted(environment.sources("*.pyx", "*.pxd"))
    modules = [f"duepool._core.{path.stem}" for path in cython if path.suffix == ".pyx"]
    python = _files(ROOT / "src", "*.py", "*.pyi")
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    tools = tuple(_files(ROOT / "tools", "*.py"))
    names = [path.relative_to(ROOT).as_posix() for path in cython]
    yml = [path.relative_to(ROOT).as_posix() for path in workflows]
    core = (*cython, *environment.sources("*.h"), ROOT / "setup.py")
    return [
        Check(
            "stubtest",
            _module("mypy.stubtest", "--mypy-config-file", "pyproject.toml", *modules),
            (*core, *python),
        ),
        Check("mypy", _module("mypy")),
        Check("performance hints", [str(PYTHON), "tools/check_hints.py"], (*core, *tools)),
        Check("ruff check", _module("ruff", "check", ".")),
        Check("ruff format", _module("ruff", "format", "--check", ".")),
        Check("cython-lint", [_script("cython-lint"), *names]),
        Check("zizmor", [_script("zizmor"), "--offline", "--quiet", ".github/workflows"]),
        Check(
            "workflow schema",
            [_script("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *yml],
        ),
        *(
            Check(
                f"cibuildwheel {system}",
                _module("cibuildwheel", "--print-build-identifiers", "--platform", system),
            )
            for system in ("linux", "macos", "windows")
        ),
    ]


def _files(folder: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.rglob(pattern))


def _module(name: str, *arguments: str) -> list[str]:
    return [str(PYTHON), "-m", name, *arguments]


def _script(name: str) -> str:
    return str(PYTHON.with_name(f"{name}.exe" if os.name == "nt" else name))


def _run(check: Check, done: dict[str, str]) -> Outcome:
    start = time.monotonic()
    key = check.key() if check.inputs else ""  # before it runs: they may change meanwhile
    if key and done.get(check.name) == key:
        return Outcome(check, True, 0.0, cached=True, key=key)
    try:
        process = subprocess.run(
            check.command,
            cwd=ROOT,
            env=environment.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(check, False, time.monotonic() - start, str(error))
    took = time.monotonic() - start
    return Outcome(check, process.returncode == 0, took, process.stdout, key=key)
