"""Fails when Cython has a performance hint for the compiled engine.

A hint is all that Cython says of a function that takes the interpreter's lock again after each
call under ``nogil``: some 90 ns, and a deadlock where the monitor is held. The engine is translated
afresh into a temporary directory, as setup.py does it. First the check itself is checked, on a
module with such a function and on one without.

``--self-test`` does that alone.
"""

import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = "performance hint"
BAD = """
cdef void step() nogil:
    pass

def run():
    with nogil:
        step()
"""
GOOD = BAD.replace("step() nogil:", "step() noexcept nogil:")


def hints(report: str) -> list[str]:
    """The lines of Cython's report that carry a hint."""
    return [line.strip() for line in report.splitlines() if MARK in line.lower()]


def report_of(*arguments: str) -> str:
    """What Cython prints when a fresh process translates; its failure is ours."""
    process = subprocess.run(
        [sys.executable, __file__, "--translate", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if process.returncode:
        print(process.stdout)
        raise SystemExit("check_hints: the translation failed")
    return process.stdout


def translate(target: str, source: str | None = None) -> None:
    """Translate the engine, or the one file ``source``, into the directory ``target``."""
    setup: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"), run_name="duepool_setup")
    modules = setup["extensions"]()
    if source is not None:
        extension: Callable[..., Any] = setup["Extension"]
        modules = [extension(Path(source).stem, [source])]
    if not modules:
        raise SystemExit("check_hints: no .pyx found")
    setup["translate"](modules, target, force=True)


def self_test(directory: Path) -> None:
    """A module that deserves a hint must get one, its mended twin none."""
    for name, text, wanted in (("bad", BAD, True), ("good", GOOD, False)):
        source = directory / f"{name}.pyx"
        source.write_text(text, encoding="utf-8")
        if bool(hints(report_of(str(directory / name), str(source)))) is not wanted:
            raise SystemExit(f"check_hints: cannot tell: the {name} module was taken for the other")


def main(arguments: list[str]) -> int:
    """1 when there are hints, which are printed."""
    if arguments[:1] == ["--translate"]:
        translate(*arguments[1:])
        return 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        self_test(directory)
        if arguments == ["--self-test"]:
            print("check_hints: told the planted module from its mended twin")
            return 0
        found = hints(report_of(str(directory / "engine")))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
