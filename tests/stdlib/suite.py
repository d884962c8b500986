"""The standard library's own tests of executors and futures, on ``duepool.Scheduler``.

Run as a script, ``suite.py FILE``: runs them on the engine that DUEPOOL_ENGINE names and writes one
JSON object a line into FILE, one for each test. The tests are imported from the ``test`` package of
the running interpreter. They run unchanged, but for what ``EXCLUDED`` lists: ``ThreadPoolExecutor``
is replaced by ``Pool`` while a test runs, in the scripts that a test starts too, and the futures
that a test makes by hand are tasks (``stage.py``).
"""

import concurrent.futures
import contextlib
import faulthandler
import fnmatch
import importlib
import json
import logging
import os
import pkgutil
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import stage

import duepool

PACKAGE = "test.test_concurrent_futures"

# name (or pattern) -> (first version that has it, why it is not run as it stands). Where a class
# below defines a test of the same name, that one stands in for it. Every entry must still exist.
EXCLUDED: dict[str, tuple[tuple[int, int], str]] = {
    "ThreadPoolExecutorTest.test_max_workers_negative": (
        (3, 11),
        "max_workers=0 is manual mode here; stand-in: a negative number is a ValueError",
    ),
    "ThreadPoolExecutorTest.test_idle_thread_reuse": (
        (3, 11),
        "each submission starts one more worker until max_workers exist, since an idle one may be "
        "needed for the next deadline; stand-in: three submissions start three",
    ),
    "ThreadPoolShutdownTest.test_submit_after_interpreter_shutdown": (
        (3, 12),
        "expects 'RuntimeError: …' in a traceback, ours names the subclass SchedulerClosed; "
        "stand-in: the same script, whose RuntimeError has the same message",
    ),
    "ThreadPoolShutdownTest.test_thread_names_default": (
        (3, 11),
        "the default thread name holds ours, duepool-N_worker-K; stand-in: checks that one",
    ),
    "FutureTests.test_cancel": (
        (3, 11),
        "cancel() of a running task asks its body and is True, and a cancelled task needs no "
        "notification; stand-in: the same table with our answers",
    ),
    "FutureTests.test_repr": ((3, 11), "the repr of a task is our own"),
    "FutureTests.test_exception_with_success": (
        (3, 11),
        "sets private attributes of a Future; stand-in: the body raises while another thread waits",
    ),
    "FutureTests.test_multiple_set_result": (
        (3, 11),
        "nobody sets the outcome of a task; set_result() is always an InvalidStateError",
    ),
    "FutureTests.test_multiple_set_exception": (
        (3, 11),
        "nobody sets the outcome of a task; set_exception() is always an InvalidStateError",
    ),
    "FutureTests.test_done_callback_raises_already_succeeded": (
        (3, 11),
        "expects the log text of concurrent.futures; stand-in: the same with the text of ours",
    ),
}

# Classes and modules of the package that are not run at all.
EXCLUDED_CLASSES: dict[str, str] = {
    "BaseTestCase": "has no tests",
    "ProcessPool*": "processes: not this executor",
    "InterpreterPool*": "subinterpreters: not this executor",
    "FailingInitializerResourcesTest": "the resource tracker of process pools",
    "WorkerInitializerTest": "processes: not this executor",
}
EXCLUDED_MODULES: dict[str, tuple[tuple[int, int], str]] = {
    "test_deadlock": ((3, 12), "deadlocks of process pools by failed pickling"),
    "test_process_pool": ((3, 12), "processes: not this executor"),
    "test_interpreter_pool": ((3, 14), "subinterpreters: not this executor"),
}

# Module of the package -> its classes that are run here; what of them is replaced by tasks.
ALL_FUTURES = (*stage.CONSTANTS, "Future", "create_future")
GROUPS: dict[str, tuple[str, ...]] = {
    "test_thread_pool": ("ThreadPoolExecutorTest",),
    "test_wait": ("ThreadPoolWaitTests",),
    "test_as_completed": ("ThreadPoolAsCompletedTest",),
    "test_shutdown": ("ThreadPoolShutdownTest",),
    "test_init": ("ThreadPoolInitializerTest", "ThreadPoolFailingInitializerTest"),
    "test_future": ("FutureTests",),
}
STAGED: dict[str, tuple[str, ...]] = {
    # A Future that is cancelled and not yet notified does not exist here: that one stays a Future,
    # and shows that wait() takes a mixture.
    "ThreadPoolWaitTests": tuple(n for n in stage.CONSTANTS if n != "CANCELLED_FUTURE"),
    "ThreadPoolAsCompletedTest": ALL_FUTURES,
    "FutureTests": ALL_FUTURES,
}


class Pool(duepool.Scheduler):
    """A scheduler that answers to the private names of ``ThreadPoolExecutor`` in the tests."""

    @property
    def _max_workers(self) -> int:
        return self._engine.max_workers

    @property
    def _threads(self) -> list[Any]:
        return [worker.thread for worker in self._crew._threads]

    @property
    def _broken(self) -> bool:
        return self._engine.broken is not None


def module_of(name: str) -> Any:
    """The module ``name`` of the tests; before 3.12 they were one module."""
    package = importlib.import_module(PACKAGE)
    if not hasattr(package, "__path__"):
        return package
    return importlib.import_module(f"{PACKAGE}.{name}")


def in_scripts(original: Any) -> Any:
    """``assert_python_ok`` whose scripts find a ``Scheduler`` for ``ThreadPoolExecutor``."""

    def assert_python_ok(*args: str, **environment: Any) -> Any:
        *options, script = args
        where = [str(Path(duepool.__file__).parents[1])]
        prelude = (
            f"import sys; sys.path[:0] = {where!r}\n"
            "import concurrent.futures, duepool\n"
            "concurrent.futures.ThreadPoolExecutor = duepool.Scheduler\n"
            "concurrent.futures.Pool = duepool.Scheduler\n"
        )
        return original(*options, prelude + script, **environment)

    return assert_python_ok


class OnScheduler:
    """First base of each of our classes: puts the scheduler in the place of the thread pool."""

    executor_type = Pool
    stage_module: Any
    staged: tuple[str, ...] = ()

    def setUp(self) -> None:
        # Before the test's own setUp, which counts the threads, and undone after its tearDown.
        self.enterContext(mock.patch.object(concurrent.futures, "ThreadPoolExecutor", Pool))
        module = self.stage_module
        if hasattr(module, "assert_python_ok"):
            patched = in_scripts(module.assert_python_ok)
            self.enterContext(mock.patch.object(module, "assert_python_ok", patched))
        if self.staged:
            futures = self.enterContext(stage.Stage())
            for name in self.staged:
                if hasattr(module, name):
                    self.enterContext(mock.patch.object(module, name, getattr(futures, name)))
        super().setUp()


class ThreadPoolExecutorTest(OnScheduler):
    def test_max_workers_negative(self) -> None:
        with self.assertRaisesRegex(ValueError, "max_workers must be at least 0.*-1"):
            self.executor_type(max_workers=-1)

    def test_idle_thread_reuse(self) -> None:
        executor = self.executor_type(4)
        for number in range(1, 4):
            self.assertEqual(executor.submit(abs, -number).result(), number)
            self.assertEqual(len(executor._threads), number)
        executor.shutdown(wait=True)


class ThreadPoolShutdownTest(OnScheduler):
    def test_submit_after_interpreter_shutdown(self) -> None:
        script = """if 1:
            import atexit
            @atexit.register
            def run_last():
                try:
                    t.submit(id, None)
                except RuntimeError as error:
                    print(error)
            from concurrent.futures import ThreadPoolExecutor
            t = ThreadPoolExecutor(5)
            t.submit(id, 42).result()
            """
        _, out, err = self.stage_module.assert_python_ok("-c", script)
        self.assertEqual(err, b"")
        self.assertIn(b"cannot schedule new futures", out)

    def test_thread_names_default(self) -> None:
        executor = self.executor_type(max_workers=5)
        executor.map(abs, range(-5, 5))
        threads = executor._threads
        del executor
        self.assertEqual(len(threads), 5)
        for thread in threads:
            self.assertRegex(thread.name, r"^duepool-\d+_worker-[0-4]$")
            thread.join()


class ThreadPoolFailingInitializerTest(OnScheduler):
    @contextlib.contextmanager
    def _assert_logged(self, msg: str) -> Iterator[None]:
        with self.assertLogs("duepool", logging.CRITICAL) as log:
            yield
        self.assertTrue(any(msg in line for line in log.output), log.output)


class FutureTests(OnScheduler):
    def test_cancel(self) -> None:
        create = self.stage_module.create_future
        table = [
            (create("PENDING"), True, "CANCELLED_AND_NOTIFIED"),
            # Made before the test's own setUp counted the threads.
            (self.stage_module.RUNNING_FUTURE, True, "RUNNING"),
            (create("CANCELLED_AND_NOTIFIED"), True, "CANCELLED_AND_NOTIFIED"),
            (create("FINISHED", exception=OSError()), False, "FINISHED"),
            (create("FINISHED", result=5), False, "FINISHED"),
        ]
        for task, answer, state in table:
            self.assertIs(task.cancel(), answer)
            self.assertEqual(task._state, state)

    def test_exception_with_success(self) -> None:
        create, error = self.stage_module.create_future, OSError()
        task = create("PENDING")
        with concurrent.futures.ThreadPoolExecutor(1) as waiting:
            seen = waiting.submit(task.exception, 30)
            task.set_exception(error)
            self.assertIs(seen.result(30), error)

    def test_done_callback_raises_already_succeeded(self) -> None:
        def callback(_task: Any) -> None:
            raise Exception("doh!")

        with self.assertLogs("duepool", logging.ERROR) as log:
            task = self.stage_module.Future()
            task.set_result(5)
            task.add_done_callback(callback)
        self.assertEqual(len(log.output), 1)
        self.assertRegex(log.output[0], r"(?s)a callback of <Task 1 SUCCEEDED>.*doh!")


OURS = {c.__name__: c for c in OnScheduler.__subclasses__()}


def excluded_reason(name: str) -> str | None:
    """Why the test ``Class.test_name`` is not run; None when it is."""
    for pattern, (_, reason) in EXCLUDED.items():
        if fnmatch.fnmatchcase(name, pattern):
            return reason
    return None


def build(module_name: str, class_name: str) -> type[unittest.TestCase]:
    """The standard library's test class on our scheduler."""
    module = module_of(module_name)
    first = OURS.get(class_name, OnScheduler)
    body: dict[str, Any] = {"stage_module": module, "staged": STAGED.get(class_name, ())}
    original = getattr(module, class_name)
    made = type(class_name, (first, original), body)
    for name in unittest.TestLoader().getTestCaseNames(made):
        reason = excluded_reason(f"{class_name}.{name}")
        if reason is not None and name not in vars(first):
            setattr(made, name, unittest.skip(reason)(getattr(made, name)))
    return made


def rotten() -> list[str]:
    """Entries of the tables that match nothing any more, and what no table mentions."""
    complaints = []
    running = {c: getattr(module_of(m), c) for m, classes in GROUPS.items() for c in classes}
    names = [
        f"{class_name}.{test}"
        for class_name, original in running.items()
        for test in unittest.TestLoader().getTestCaseNames(original)
    ]
    for pattern, (since, _) in EXCLUDED.items():
        if sys.version_info >= since and not fnmatch.filter(names, pattern):
            complaints.append(f"EXCLUDED has {pattern}, which no longer exists")
    for class_name, ours in OURS.items():
        for test in vars(ours):
            if test.startswith("test_") and f"{class_name}.{test}" not in EXCLUDED:
                complaints.append(f"{class_name}.{test} stands in for a test that is not excluded")
    package = importlib.import_module(PACKAGE)
    if hasattr(package, "__path__"):
        present = {m.name for m in pkgutil.iter_modules(package.__path__) if "test_" in m.name}
        known = {m for m, (since, _) in EXCLUDED_MODULES.items() if sys.version_info >= since}
        complaints += [f"module {m} is in no table" for m in present - known - set(GROUPS)]
        complaints += [f"EXCLUDED_MODULES has {m}, which is gone" for m in known - present]
    for module_name in GROUPS:
        for name, value in vars(module_of(module_name)).items():
            if isinstance(value, type) and issubclass(value, unittest.TestCase):
                listed = any(fnmatch.fnmatchcase(name, p) for p in EXCLUDED_CLASSES)
                if name not in running and not listed:
                    complaints.append(f"class {module_name}.{name} is in no table")
    return complaints


class Reporter(unittest.TestResult):
    """Writes the outcome of each test as soon as it is known."""

    def __init__(self, file: Any, group: str) -> None:
        super().__init__()
        self.file, self.group, self.told = file, group, False

    def tell(self, outcome: str, test: Any, text: str = "") -> None:
        self.told = True
        name = f"{type(test).__name__}.{getattr(test, '_testMethodName', test)}"
        line = {"group": self.group, "test": name, "outcome": outcome, "text": text}
        print(json.dumps(line), file=self.file, flush=True)

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.told = False
        importlib.import_module("test.support").environment_altered = False
        self.tell("started", test)

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        if importlib.import_module("test.support").environment_altered:
            self.tell("failed", test, "it left threads or child processes behind")
        else:
            self.tell("passed", test)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.tell("excluded" if excluded_reason(self.name(test)) else "skipped", test, reason)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.tell("failed", test, self.failures[-1][1])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.tell("failed", test, self.errors[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.tell("failed", test, "".join(map(str, err)))

    @staticmethod
    def name(test: Any) -> str:
        return f"{type(test).__name__}.{test._testMethodName}"


def main() -> None:
    faulthandler.dump_traceback_later(float(os.environ.get("SUITE_DUMP_AFTER_S", "120")))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for complaint in rotten():
            print(json.dumps({"complaint": complaint}), file=file, flush=True)
        for module_name, class_names in GROUPS.items():
            for class_name in class_names:
                cases = unittest.TestLoader().loadTestsFromTestCase(build(module_name, class_name))
                cases.run(Reporter(file, module_name))


if __name__ == "__main__":
    main()
