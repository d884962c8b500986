"""Builds the compiled engine; everything else about the package stands in pyproject.toml.

``DUEPOOL_BUILD`` says what happens:

- unset or ``auto``: compile; where that fails, say so in one line and install plain Python;
- ``require``: compile; where that fails, so does the installation;
- ``none``: compile nothing.
"""

import contextlib
import os
import sys
import textwrap
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = Path("src", "duepool", "_core")
DIRECTIVES = {
    "language_level": 3,
    "freethreading_compatible": True,
    "auto_pickle": False,
    "autotestdict": False,
}
COMPILE_ARGS = ["/O2"] if os.name == "nt" else ["-O3", "-pthread"]
LINK_ARGS = [] if os.name == "nt" else ["-pthread"]
JOBS = 2


def mode() -> str:
    """The value of ``DUEPOOL_BUILD``, checked."""
    value = os.environ.get("DUEPOOL_BUILD") or "auto"
    if value not in ("auto", "require", "none"):
        raise SystemExit(f"DUEPOOL_BUILD must be 'auto', 'require' or 'none', not {value!r}")
    return value


def extensions() -> list[Extension]:
    """One extension for each ``.pyx``; each is rebuilt when any ``.pxd`` or header changes."""
    shared = sorted(path.as_posix() for kind in ("*.pxd", "*.h") for path in CORE.glob(kind))
    return [
        Extension(
            f"duepool._core.{path.stem}",
            [path.as_posix()],
            include_dirs=[CORE.as_posix()],
            depends=shared,
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=LINK_ARGS,
            language="c",
        )
        for path in sorted(CORE.glob("*.pyx"))
    ]


def translate(modules: list[Extension], build_dir: str, force: bool = False) -> list[Extension]:
    """Cython to C, under ``build_dir``."""
    from Cython.Build import cythonize

    return cythonize(
        modules,
        nthreads=JOBS,
        force=force,
        build_dir=build_dir,
        include_path=["src"],
        compiler_directives=DIRECTIVES,
    )


class BuildExt(build_ext):
    """Translates just before it compiles, and gives up as a whole or not at all."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = JOBS

    def run(self) -> None:
        if not self.extensions:
            return
        try:
            # The commands have put notes of their own on these objects: take only the sources.
            translated = translate(self.extensions, "build/cython", bool(self.force))
            for extension, result in zip(self.extensions, translated, strict=True):
                extension.sources = result.sources
            super().run()
        except Exception as error:
            if mode() == "require":
                raise
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        for extension in self.extensions:
            path = self.get_ext_fullpath(extension.name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.extensions = []
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" ...")
        announce(
            "duepool: WARNING: THE COMPILED ENGINE WAS NOT BUILT, installing the slow pure-Python "
            f"one ({reason}); set DUEPOOL_BUILD=require to make this an error"
        )


def announce(line: str) -> None:
    """Write one line to standard error, and past an installer that swallows it to the terminal."""
    print(line, file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        with (
            contextlib.suppress(OSError),
            open("CONOUT$" if os.name == "nt" else "/dev/tty", "w") as terminal,
        ):
            print(f"\n{line}", file=terminal)


# Worker processes of the translation import this file again.
if __name__ == "__main__":
    setup(
        ext_modules=[] if mode() == "none" else extensions(),
        cmdclass={"build_ext": BuildExt},
    )
