"""The pytest plugin, in child processes: this run itself is not to be touched by it."""

import importlib.metadata
import os
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
WATCHDOG_S = 60


@pytest.fixture
def run(pytester, monkeypatch, engine):
    """Runs a test file in a child process, with no plugin but this one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=os.pathsep)
    monkeypatch.setenv("DUEPOOL_ENGINE", engine)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(source, *arguments, plugin=True):
        pytester.makepyfile(source)
        load = ["-p", "duepool.pytest_plugin"] if plugin else []
        return pytester.runpytest_subprocess(*load, *arguments, timeout=WATCHDOG_S)

    return run


def test_a_clock_and_a_scheduler_on_it(run, engine):
    done = run(
        f"""
        import duepool, threading

        def test_clock(duepool_clock):
            assert type(duepool_clock) is duepool.ManualClock
            assert duepool_clock.now_ns() == 0

        def test_scheduler(duepool_scheduler, duepool_clock):
            assert duepool_scheduler._engine.clock is duepool_clock
            assert "manual" in repr(duepool_scheduler)
            assert duepool.engine == {engine!r}
            ran = []
            duepool_scheduler.submit_after(3, lambda: ran.append(duepool_clock.now_ns()))
            assert duepool_scheduler.run_for(5) == 1
            assert ran == [3_000_000_000]

        def test_each_test_has_its_own(duepool_scheduler, duepool_clock):
            assert duepool_clock.now_ns() == 0
            assert duepool_scheduler.stats().admitted == 0
            assert threading.active_count() == 1
        """
    )
    done.assert_outcomes(passed=3)


def test_after_the_test_it_is_shut_down_and_its_queue_cancelled(run):
    done = run(
        """
        kept = []

        def test_first(duepool_scheduler):
            kept.extend([duepool_scheduler, duepool_scheduler.submit_after(5, print)])

        def test_second():
            scheduler, task = kept
            assert task.cancelled()
            assert "closed" in repr(scheduler)
        """
    )
    done.assert_outcomes(passed=2)


def test_the_engine_can_be_overridden(run):
    done = run(
        """
        import pytest

        @pytest.fixture(params=["cython", "python"])
        def duepool_engine(request):
            return request.param

        def test_both(duepool_scheduler, duepool_engine):
            assert type(duepool_scheduler)._engine_module.NAME == duepool_engine
        """
    )
    done.assert_outcomes(passed=2)


UNSEEN = """
    def fail():
        raise ValueError("nobody saw me")

    def test_unseen(duepool_scheduler):
        duepool_scheduler.submit(fail)
        duepool_scheduler.run_for(1)

    def test_seen(duepool_scheduler):
        task = duepool_scheduler.submit(fail)
        duepool_scheduler.run_for(1)
        assert isinstance(task.exception(), ValueError)
"""


def test_a_failure_that_nobody_looked_at_is_a_warning(run):
    done = run(UNSEEN)
    done.assert_outcomes(passed=2, warnings=1)
    done.stdout.fnmatch_lines(
        ["*test_*py::test_unseen*", "*task 1 failed*ValueError('nobody saw me')*"]
    )


def test_which_can_be_made_an_error(run):
    done = run(UNSEEN, "-W", "error::duepool.pytest_plugin.UnseenFailureWarning")
    done.assert_outcomes(passed=2, errors=1)


def test_without_its_fixtures_it_does_nothing(run):
    source = """
        import sys, threading

        def test_nothing():
            assert threading.active_count() == 1
            assert "duepool.testing" not in sys.modules
            assert "duepool.cli" not in sys.modules
    """
    run(source).assert_outcomes(passed=1)


def test_without_the_plugin_there_are_no_fixtures(run):
    done = run("def test_it(duepool_clock): pass", plugin=False)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'duepool_clock' not found*"])


def test_its_fixtures_are_described(run):
    done = run("", "--fixtures")
    done.stdout.fnmatch_lines(["duepool_clock*", "duepool_scheduler*"])
    done.stdout.no_fnmatch_line("*no docstring available*duepool*")


def test_pytest_finds_it_where_duepool_is_installed():
    with open(ROOT / "pyproject.toml", "rb") as stream:
        declared = tomllib.load(stream)["project"]["entry-points"]["pytest11"]
    assert declared == {"duepool": "duepool.pytest_plugin"}
    found = [e for e in importlib.metadata.entry_points(group="pytest11") if e.name == "duepool"]
    assert {entry.value for entry in found} <= {"duepool.pytest_plugin"}
