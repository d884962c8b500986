"""C34: submissions once the interpreter has begun to leave.

The body of a last recurring run (c) is that of a last task here.
"""

import pytest

from . import children
from .children import SLACK_S

SUBMIT = """
def submit(tell):
    start = time.monotonic()
    try:
        scheduler.submit(tell, "ran", flush=True)
    except SchedulerClosed as error:
        assert "cannot schedule new futures after" in str(error), error
        assert time.monotonic() - start < 1
        tell("refused", flush=True)

"""


def test_c34_an_atexit_handler_that_submits(engine):
    ended = children.run(
        SUBMIT
        + """
scheduler = Scheduler(2, exit_grace=1)
scheduler.submit(int).result()
atexit.register(submit, print)
left()
""",
        engine,
    ).check()
    assert ended.lines in (["refused"], ["ran"])
    assert ended.leaving_s < 1 + SLACK_S


def test_c34_a_thread_that_submits_after_main_has_ended(engine):
    ended = children.run(
        SUBMIT
        + """
scheduler = Scheduler(2, exit_grace=1)
scheduler.submit(int).result()

def outlive():
    threading.main_thread().join()
    time.sleep(0.5)
    submit(print)

threading.Thread(target=outlive).start()
left()
""",
        engine,
    ).check()
    assert ended.lines in (["refused"], ["ran"])
    assert ended.leaving_s < 1 + SLACK_S


@pytest.mark.parametrize("how", ["submit", "submit_after", "submit_many", "with_options"])
def test_c34_a_body_that_submits_while_the_interpreter_leaves(engine, how):
    call = {
        "submit": "scheduler.submit(int)",
        "submit_after": "scheduler.submit_after(0.01, int)",
        "submit_many": "scheduler.submit_many([int, int])",
        "with_options": 'scheduler.with_options(name="late").submit(int)',
    }[how]
    ended = children.run(
        f"""
scheduler = Scheduler(1, exit_grace=5)
started = threading.Event()
def body():
    started.set()
    leaving(scheduler)
    try:
        {call}
    except SchedulerClosed:
        print("refused", flush=True)
scheduler.submit(body)
started.wait()
left()
""",
        engine,
    ).check()
    assert ended.lines == ["refused"]
    assert ended.leaving_s < SLACK_S


def test_c34_waits_for_tasks_in_an_atexit_handler_end(engine):
    ended = children.run(
        """
        scheduler = Scheduler(1, exit_grace=0.1)
        done, later = scheduler.submit(int), scheduler.submit_after(3600, int)
        done.result()

        def ask():
            assert done.result() == 0
            try:
                later.result()
            except CancelledError:
                print(later.cancel_reason)
            assert scheduler.shutdown().complete
            assert scheduler.await_termination(10)
            print(len(repr(scheduler)) > 10, scheduler.stats().queued)

        atexit.register(ask)
        left()
        """,
        engine,
    ).check()
    assert ended.lines == ["shutdown", "True 0"]
    assert ended.leaving_s < 0.1 + SLACK_S


def test_c34_a_scheduler_made_in_an_atexit_handler_is_closed(engine):
    ended = children.run(
        SUBMIT
        + """
def late():
    global scheduler
    for workers in (0, 1):
        scheduler = Scheduler(workers)
        submit(print)
    with Scheduler(2):
        pass
    Scheduler(1).shutdown()
atexit.register(late)
left()
""",
        engine,
    ).check()
    assert ended.lines == ["refused", "refused"]


@pytest.mark.parametrize("before", ["", "import concurrent.futures.thread"])
def test_c34_the_package_first_imported_in_an_atexit_handler(engine, before):
    """Where nothing had imported threads before, the interpreter still lets them start."""
    ended = children.run(
        f"""
        import atexit
        {before}

        def late():
            import duepool
            scheduler = duepool.Scheduler(1)
            try:
                print(scheduler.submit(int).result(10))
            except duepool.SchedulerClosed:
                print("refused")

        atexit.register(late)
        """,
        engine,
        prelude="",
    ).check()
    assert ended.lines == ["refused"] if before else ended.lines in (["refused"], ["0"])
