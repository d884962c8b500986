"""The tasks of ``tools/dev.py``."""

import os
import subprocess
import sys

from devkit import environment, lint

_USAGE = """\
usage: python tools/dev.py TASK [arguments]

  demo    replay a job log and time 100,000 time-outs   (examples/demo.py)
  test    build the compiled engine and run the tests   (pytest)
  lint    every check of the source that runs no test
  bench   the benchmarks                                (bench/run.py)

The arguments go to the program in brackets; lint takes none."""

# Much of the suite waits for real time to pass, so that a second process pays even beside the
# threads of the tests; the tests of one file share fixtures and stay together.
_PROCESSES = str(min(4, os.cpu_count() or 1))

# task: extras, dependency groups, what the environment's Python then runs (None: lint)
_TASKS: dict[str, tuple[set[str], set[str], list[str] | None]] = {
    "demo": ({"cli"}, set(), ["examples/demo.py"]),
    "test": ({"test"}, set(), ["-m", "pytest", "-n", _PROCESSES, "--dist", "loadfile"]),
    "lint": ({"cli"}, {"lint"}, None),
    "bench": ({"bench"}, set(), ["bench/run.py"]),
}


def main(arguments: list[str]) -> int:
    """Run one task; its exit code, or 2 where the set-up or the call is at fault."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    if not arguments or arguments[0] not in _TASKS or (arguments[0] == "lint" and arguments[1:]):
        print(_USAGE, file=sys.stderr)
        return 2
    extras, groups, program = _TASKS[arguments[0]]
    try:
        environment.prepare(extras, groups)
    except environment.SetupError as error:
        print(error, file=sys.stderr)
        return 2
    if program is None:
        return lint.run()
    return _hand_over([str(environment.PYTHON), *program, *arguments[1:]])


def _hand_over(command: list[str]) -> int:
    """Become that program, so that its signals are its own; on Windows, wait for it."""
    os.chdir(environment.ROOT)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(command[0], command, environment.environ())
    with subprocess.Popen(command, env=environment.environ()) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:  # the child has it too, and answers it
                continue
