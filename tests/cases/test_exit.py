"""C35: the interpreter leaves while a scheduler still has work; without the recurring job."""

import pytest

from . import children, size
from .children import SLACK_S

pytestmark = children.LIMIT

C35_EXITS = size(2, 200)

# Only "in C" ends by itself: what keeps the GIL for ever keeps any process.
BODIES = {
    "spins": "def body():\n    started.release()\n    while True: pass\n",
    "sleeps": "def body():\n    started.release()\n    time.sleep(3600)\n",
    "in C": "def body():\n    started.release()\n    sum(range(30_000_000))\n",
    "waits": "def body():\n    started.release()\n    threading.Event().wait()\n",
    "asks, and ends": (
        "def body():\n    started.release()\n    while not cancel_requested(): time.sleep(0.001)\n"
    ),
    "sleeps on the clock": "def body():\n    started.release()\n    duepool.sleep(3600)\n",
}
ENDLESS = ["spins", "sleeps", "waits"]


@pytest.mark.parametrize("end", ["", "sys.exit()", "threading.Thread(target=sys.exit).start()"])
def test_c35_spinning_bodies_and_no_shutdown(engine, end):
    for _ in range(C35_EXITS):
        ended = children.run(
            f"""
            started = threading.Semaphore(0)
            scheduler = Scheduler(8, exit_grace=0.1)
            def body():
                started.release()
                while True: pass
            for _ in range(8):
                scheduler.submit(body)
            for _ in range(100):
                scheduler.submit_after(0.01, int)
            for _ in range(8):
                started.acquire()
            left()
            {end}
            """,
            engine,
        ).check()
        assert ended.leaving_s < 0.1 + SLACK_S


GRACES = [(body, 0.2) for body in BODIES] + [(body, 0) for body in ENDLESS]


@pytest.mark.parametrize(("body", "grace"), GRACES)
def test_c35_whatever_a_body_does_the_process_leaves_in_time(engine, body, grace):
    ended = children.run(
        "started = threading.Semaphore(0)\n"
        + BODIES[body]
        + f"""
scheduler = Scheduler(4, exit_grace={grace})
for _ in range(4):
    scheduler.submit(body)
for _ in range(4 if {body!r} != "in C" else 1):
    started.acquire()
left()
""",
        engine,
    ).check()
    # What holds the GIL cannot be left before it lets go.
    assert ended.leaving_s < grace + SLACK_S + (10 if body == "in C" else 0)
    if grace and body in ENDLESS:
        assert ended.leaving_s >= grace


def test_c35_without_limit_the_process_waits_for_running_and_due_tasks(engine):
    ended = children.run(
        """
scheduler = Scheduler(1, exit_grace=None)
started = threading.Event()
def body():
    started.set()
    leaving()
    time.sleep(0.3)
    print("end", flush=True)
scheduler.submit(body)
scheduler.submit(print, "due", flush=True)
scheduler.submit_after(3600, print, "delayed", flush=True)
started.wait()
left()
""",
        engine,
    ).check()
    assert ended.lines == ["end", "due"]
    assert 0.3 <= ended.leaving_s < 0.3 + SLACK_S


def test_c35_within_the_grace_due_tasks_run_and_later_ones_are_cancelled(engine):
    ended = children.run(
        """
        scheduler = Scheduler(2)  # exit_grace is 5 s; nothing needs it
        for i in range(50):
            scheduler.submit(time.sleep, 0.001)
        tasks = [scheduler.submit_after(3600, print) for _ in range(50)]
        log = Log()
        logging.getLogger().addHandler(log)
        logging.getLogger().setLevel(logging.DEBUG)

        def ask():
            stats = scheduler.stats()
            print(stats.succeeded, stats.cancelled, stats.queued, stats.running)
            print({task.cancel_reason for task in tasks})
            print([level for level, _ in log.lines])
        atexit.register(ask)
        left()
        """,
        engine,
    ).check()
    assert ended.lines == ["50 50 0 0", "{'shutdown'}", "[20]"]
    assert ended.leaving_s < SLACK_S + 1


def test_c35_graces_of_several_schedulers_run_together(engine):
    ended = children.run(
        "started = threading.Semaphore(0)\n"
        + BODIES["sleeps"]
        + """
schedulers = [Scheduler(1, exit_grace=grace) for grace in (0.5, 0, 0.5, 0.2, 0.5, 0.5, 0.5)]
for scheduler in schedulers:
    scheduler.submit(body)
for _ in schedulers:
    started.acquire()
left()
""",
        engine,
    ).check()
    assert 0.5 <= ended.leaving_s < 0.5 + SLACK_S


def test_c35_a_dropped_scheduler_with_work_left_is_found_at_exit(engine):
    ended = children.run(
        """
scheduler = Scheduler(1, exit_grace=2)
started = threading.Event()
def body():
    started.set()
    leaving()
    time.sleep(0.05)
    print("end", flush=True)
scheduler.submit(body)
scheduler.submit(print, "due", flush=True)
delayed = scheduler.submit_after(3600, print)
atexit.register(lambda: print(delayed.state.name))
started.wait()
del scheduler
left()
""",
        engine,
    ).check()
    assert ended.lines == ["end", "due", "CANCELLED"]
    assert ended.leaving_s < SLACK_S


def test_c35_a_dropped_scheduler_with_an_endless_body_does_not_keep_the_process(engine):
    ended = children.run(
        "started = threading.Semaphore(0)\n"
        + BODIES["waits"]
        + """
Scheduler(1, exit_grace=0.1).submit(body)
Scheduler(1, exit_grace=0.1).submit_after(3600, body)
started.acquire()
left()
""",
        engine,
    ).check()
    assert ended.leaving_s < 0.1 + SLACK_S


SYS_EXIT = {
    "body": (
        "print(type(Scheduler(1).submit(sys.exit, 3).exception(10)).__name__)",
        ["SystemExit"],
    ),
    "callback": (
        "task = scheduler.submit(int); task.add_done_callback(sys.exit); "
        "print(task.result(10), scheduler.submit(int).result(10))",
        ["0 0"],
    ),
    "callback later": (
        "task = scheduler.submit(int); task.result(10); task.add_done_callback(sys.exit); print(1)",
        ["1"],
    ),
    "initializer": (
        "broken = Scheduler(1, initializer=sys.exit)\n"
        "try: print(type(broken.submit(int).exception(10)).__name__)\n"
        "except BrokenScheduler: print('BrokenScheduler')",
        ["BrokenScheduler"],
    ),
}


@pytest.mark.parametrize("where", SYS_EXIT)
def test_c35_sys_exit_on_a_worker_ends_neither_the_process_nor_the_worker(engine, where):
    script, lines = SYS_EXIT[where]
    ended = children.run(
        f"""
logging.getLogger("duepool").setLevel(100)  # both are logged as they should be
scheduler = Scheduler(1)
{script}
assert scheduler.submit(sum, [1, 2]).result(10) == 3
left()
""",
        engine,
    ).check()
    assert ended.lines == lines
    assert ended.leaving_s < SLACK_S


@pytest.mark.parametrize("code", [0, 3])
def test_c35_the_exit_code_of_main_is_the_exit_code(engine, code):
    ended = children.run(
        f"""
        scheduler = Scheduler(2, exit_grace=0)
        started = threading.Event()
        def body():
            started.set()
            while True: pass
        scheduler.submit(body)
        started.wait()
        sys.exit({code})
        """,
        engine,
    )
    assert (ended.code, ended.err) == (code, "")


def test_c35_manual_mode_with_work_left(engine):
    ended = children.run(
        """
        scheduler = Scheduler(0)
        tasks = [scheduler.submit(print, "ran"), scheduler.submit_after(3600, print, "ran")]
        left()
        """,
        engine,
    ).check()
    assert ended.lines == []
    assert ended.leaving_s < SLACK_S


@pytest.mark.parametrize("keep", ["", "kept = "])
def test_c35_a_body_that_fails_while_the_interpreter_leaves_says_nothing(engine, keep):
    """§5: a failure that nobody looked at is logged, but never after interpreter exit began."""
    children.run(
        f"""
scheduler = Scheduler(1, exit_grace=2)
started = threading.Event()
def body():
    started.set()
    leaving()
    raise ValueError("while leaving")
{keep}scheduler.submit(body)
started.wait()
left()
""",
        engine,
    ).check()


def test_c35_an_unseen_failure_whose_handle_lives_to_the_end_says_nothing(engine):
    children.run(
        """
        scheduler = Scheduler(1)
        kept = scheduler.submit(int, "no number")
        scheduler.submit(int).result(10)
        assert kept.done()
        left()
        """,
        engine,
    ).check()


@pytest.mark.parametrize("workers", [1, 8])
def test_c35_idle_workers_and_armed_deadlines(engine, workers):
    ended = children.run(
        f"""
        scheduler = Scheduler({workers})
        for _ in range(20):
            scheduler.submit(int).result()
        armed = scheduler.submit_after(3600, int)
        left()
        """,
        engine,
    ).check()
    assert ended.leaving_s < SLACK_S
