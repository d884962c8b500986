"""Virtual time and signals, forks, dropped schedulers and broken ones."""

import gc
import os
import sys

import pytest
from cases.children import run

from duepool import BrokenScheduler, Scheduler

from . import S
from .support import SOON

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@posix
@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_ends_a_run_and_the_next_one_works(engine, workers):
    """Struck a hundred times at chance moments, the clock can always be moved on."""
    ended = run(
        """
        # A Ctrl-C that strikes a finalizer is lost, as everywhere: it comes again.
        logging.disable()
        sys.unraisablehook = lambda _: None
        clock = ManualClock()
        scheduler = Scheduler(int(sys.argv[1]), clock=clock)

        def again():
            scheduler.submit_after(1, again)

        scheduler.submit_after(1, again)
        struck = 0
        end = time.monotonic() + 30
        while struck < 100 and time.monotonic() < end:
            try:
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                signal.setitimer(signal.ITIMER_REAL, 0.003 + struck % 7 * 0.0005, 0.1)
                scheduler.run_until_idle(timeout=10)
            except KeyboardInterrupt:
                struck += 1
            finally:
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
            if not scheduler.tasks():  # it struck the body
                scheduler.submit_after(1, again)
        assert struck == 100
        assert scheduler.run_for(10, timeout=10) >= 9
        scheduler.shutdown_now()
        """,
        engine,
        workers,
    )
    assert ended.code == 0, ended.err


@posix
def test_ctrl_c_while_a_stuck_body_is_waited_for(engine):
    ended = run(
        """
        clock = ManualClock()
        pool = Scheduler(1, clock=clock)
        gate = threading.Event()
        pool.submit_after(1, gate.wait)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        try:
            pool.run_for(5, timeout=None)
        except KeyboardInterrupt:
            print(time.monotonic() - begin < 5, clock.now_ns())
        gate.set()
        print(pool.run_for(4), clock.now_ns())
        """,
        engine,
    ).check()
    assert ended.lines == ["True 1000000000", "0 5000000000"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forks_copy_refuses_and_a_new_one_works_there(engine):
    ended = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        clock = ManualClock()
        pool = Scheduler(1, clock=clock)
        pool.submit_after(1, print, "in the parent", flush=True)
        child = os.fork()
        if not child:
            for call in (lambda: pool.run_for(5), pool.run_until_idle):
                try:
                    call()
                except SchedulerClosed:
                    print("refused", flush=True)
            fresh = Scheduler(0, clock=clock)
            fresh.submit_after(1, print, "in the child", flush=True)
            fresh.run_for(5)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        pool.run_for(5)
        """,
        engine,
    ).check()
    assert ended.lines == ["refused", "refused", "in the child", "0", "in the parent"]


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="needs reference counts")
def test_a_dropped_pool_runs_what_it_accepted(make, clock, engine):
    other = make(0, clock=clock)
    pool = Scheduler(1, clock=clock, engine=engine)
    task = pool.submit_after(5, clock.now_ns)
    del pool
    gc.collect()
    assert other.run_for(10) == 0
    assert task.result(SOON) == 5 * S


def test_a_broken_pool_hinders_nobody(make, clock):
    def fail():
        raise ValueError("broken")

    other = make(0, clock=clock)
    broken = Scheduler(1, clock=clock, initializer=fail)
    try:
        task = broken.submit_after(5, clock.now_ns)
    except BrokenScheduler:
        task = None
    assert other.run_for(10) == 0
    if task is not None:
        assert isinstance(task.exception(SOON), BrokenScheduler)
    assert clock.now_ns() == 10 * S
