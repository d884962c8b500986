"""What the tests of injected executors share: executors that do as they are told, and scripts.

Bodies for other processes are functions of ``bodies.py``, which workers can import.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import duepool
from duepool import TaskState

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

WATCHDOG_S = 60.0
"""Real seconds after which a child process is taken for hung."""

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


def wait_until(ready: Callable[[], Any], what: str, limit_s: float = SOON) -> None:
    """Poll until ``ready()``; fail after ``limit_s`` real seconds."""
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end, f"did not happen in {limit_s} s: {what}"
        time.sleep(0.001)


def on_thread(call: Callable[[], Any]) -> Any:
    """What ``call()`` gives or raises on a thread of its own; fails when it does not end."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(SOON)


class Parked(Executor):
    """Runs nothing by itself: the test runs, fails or cancels what was submitted."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Any, tuple[Any, ...], dict[str, Any]]] = []
        self.refusal: BaseException | None = None
        self.future_type: Callable[[], Any] = Future

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        future = self.future_type()
        self.calls.append((future, fn, args, kwargs))
        return future

    def run(self, place: int = 0) -> Any:
        """Run a call as a thread pool does; its future, or None if that was cancelled."""
        future, fn, args, kwargs = self.calls.pop(place)
        if not future.set_running_or_notify_cancel():
            return None
        try:
            value = fn(*args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)
        return future

    @property
    def futures(self) -> list[Future[Any]]:
        return [call[0] for call in self.calls]


def stop(loop):
    """Have a loop that runs elsewhere stop."""
    loop.call_soon_threadsafe(loop.stop)
    wait_until(lambda: not loop.is_running(), "the loop stops")


async def echo(value):
    await asyncio.sleep(0)
    return value


class Held:
    """A coroutine body that says when it runs, and runs until it is cancelled."""

    def __init__(self):
        self.entered = threading.Event()
        self.ended = []

    async def __call__(self, *args):
        self.entered.set()
        try:
            await asyncio.sleep(SOON)
        except BaseException as error:
            self.ended.append(type(error))
            raise
        finally:
            self.ended.append("ended")


_SOURCE = Path(__file__).resolve().parents[2] / "src"


def environment(engine: str) -> dict[str, str]:
    """The environment of a child process on ``engine``, in which the package can be imported."""
    variables = dict(os.environ, DUEPOOL_ENGINE=engine, PYTHONFAULTHANDLER="1")
    if Path(duepool.__file__).resolve().is_relative_to(_SOURCE):
        variables["PYTHONPATH"] = str(_SOURCE)
    return variables


def script(
    folder: Path,
    engine: str,
    text: str,
    *arguments: object,
    limit_s: float = WATCHDOG_S,
    python: tuple[str, ...] = (),
) -> str:
    """Run ``text`` as a script in ``folder``, a watchdog outside it, and return its output.

    A file, since processes that are spawned import it. It must exit with 0 and say nothing on
    stderr; whatever it leaves running is killed.
    """
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, *python, str(path), *map(str, arguments)],
        env=environment(engine),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT if os.name == "posix" else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        _kill(process)
        out, err = process.communicate()
        raise AssertionError(f"hung for {limit_s} s\n{out}\n{err}") from None
    finally:
        _kill(process)
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
    return out


def _kill(process: "subprocess.Popen[str]") -> None:
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
