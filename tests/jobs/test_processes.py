"""Jobs at the end of the interpreter, and in forks."""

import os

import pytest
from cases import children


def test_c35_jobs_end_with_the_interpreter(engine: str) -> None:
    """Running, armed, paused and overlapping jobs, and one that fails, when main falls off the
    end."""
    ended = children.run(
        """
        log = Log()
        logging.getLogger("duepool").addHandler(log)
        logging.getLogger("duepool").setLevel(logging.INFO)
        scheduler = Scheduler(4, exit_grace=0.5)
        scheduler.repeat(0.001, int)
        scheduler.repeat(3600, int)
        scheduler.repeat(1, int).pause()
        started = threading.Event()

        def spin():
            started.set()
            while not cancel_requested():
                pass

        scheduler.with_options(overlap="queue").repeat(0.001, spin)
        scheduler.with_options(catch_up="burst").repeat(0.001, lambda: time.sleep(0.002))
        started.wait(30)
        atexit.register(lambda: print(*(line for _, line in log.lines), sep="\\n"))
        left()
        """,
        engine,
    ).check()
    assert ended.leaving_s < 0.5 + children.SLACK_S
    assert "interpreter exit: ended 5 jobs" in ended.lines


def test_c34_the_last_run_submits_during_exit(engine: str) -> None:
    ended = children.run(
        """
        scheduler = Scheduler(2)
        other = Scheduler(2)
        entered = threading.Event()

        def body():
            entered.set()
            leaving(scheduler)
            for attempt in (
                lambda: scheduler.submit(print, "ran"),
                lambda: scheduler.repeat(0.001, print, "ran"),
                lambda: scheduler.submit_after(1, int),
                job.run_now,
                job.resume,
                lambda: Scheduler(1).repeat(1, int),
            ):
                try:
                    attempt()
                except BaseException as error:
                    print(type(error).__name__)
                else:
                    print("nothing")

        job = scheduler.repeat(0.001, body)
        entered.wait(30)
        left()
        """,
        engine,
    ).check()
    assert ended.lines == [
        "SchedulerClosed",
        "SchedulerClosed",
        "SchedulerClosed",
        "SchedulerClosed",
        "nothing",
        "SchedulerClosed",
    ]
    assert ended.leaving_s < 5 + children.SLACK_S


def test_a_waiter_is_told_at_exit(engine: str) -> None:
    """A non-daemon thread that waits for a job would keep the process for ever."""
    ended = children.run(
        """
        scheduler = Scheduler(1)
        job = scheduler.repeat(3600, int)
        threading.Thread(target=lambda: print(job.wait(), job.state.name)).start()
        left()
        """,
        engine,
    ).check()
    assert ended.lines == ["True ENDED"]
    assert ended.leaving_s < children.SLACK_S


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_c36_a_fork_refuses_jobs_and_never_hangs(engine: str) -> None:
    ended = children.run(
        """
        import warnings
        warnings.simplefilter("ignore")
        scheduler = Scheduler(2)
        ran = []
        job = scheduler.repeat(0.01, lambda: ran.append(os.getpid()))
        over = scheduler.repeat(1, int)
        over.cancel()
        while not ran:
            time.sleep(0.001)
        child = os.fork()
        if not child:
            names = []
            for attempt in (
                lambda: scheduler.repeat(1, int),
                job.wait,
                lambda: job.wait(1),
                job.pause,
                job.run_now,
                job.cancel,
                lambda: job.reschedule(1),
            ):
                try:
                    attempt()
                except SchedulerClosed as error:
                    names.append("fork" in str(error))
            print(names, over.wait(), repr(job)[:12], job.runs > 0, flush=True)
            sys.exit()
        os.waitpid(child, 0)
        count = len(ran)
        while len(ran) < count + 3:
            time.sleep(0.001)
        job.cancel()
        print(job.wait(), set(ran) == {os.getpid()})
        scheduler.shutdown()
        """,
        engine,
    ).check()
    assert ended.lines == [
        "[True, True, True, True, True, True, True] True <Job ACTIVE, True",
        "True True",
    ]
