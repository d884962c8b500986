"""C36: a fork of a process whose scheduler has started."""

import os

import pytest

from . import children, size

pytestmark = [
    children.LIMIT,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
]

C36_FORKS = size(3, 50)

# ``ran`` counts bodies whichever process they run in; children end as scripts do, by falling off
# their end, and ``reap`` gives the exit code of one and fails when it takes longer than 10 s.
FORK = """
import signal, tempfile, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is the subject
marks = tempfile.TemporaryFile(buffering=0)

def ran():
    os.write(marks.fileno(), b".")

def runs():
    return os.fstat(marks.fileno()).st_size

def reap(pid):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGABRT)
    raise AssertionError("the child hangs")

def refuses(call, *args):
    # SchedulerClosed from call(*args), in less than a second, and it says why.
    start = time.monotonic()
    try:
        call(*args)
    except SchedulerClosed as error:
        assert "fork" in str(error) or "process" in str(error), error
    else:
        raise AssertionError(f"{call} did not refuse")
    assert time.monotonic() - start < 1

entered, release = threading.Event(), threading.Event()

def hold():
    entered.set()
    assert release.wait(30)
    ran()

"""

STARTED = (
    FORK
    + """
scheduler = Scheduler(1)
finished = scheduler.submit(int, "7")
assert finished.result() == 7
running = scheduler.submit(hold)
entered.wait()
queued = [scheduler.submit(ran) for _ in range(4)]
"""
)


def test_c36_the_child_refuses_and_the_parent_goes_on(engine):
    for _ in range(C36_FORKS):
        ended = children.run(
            STARTED
            + """
pid = os.fork()
if not pid:
    refuses(scheduler.submit, ran)
    refuses(running.result, 2)
    refuses(queued[0].result, 2)
    release.set()  # its own copy: no thread is left here that waits for it
    sys.exit()
start = time.monotonic()
assert reap(pid) == 0
assert time.monotonic() - start < 2 + 1
assert runs() == 0
release.set()
assert scheduler.shutdown(timeout=30).complete
print(runs())
""",
            engine,
        ).check()
        assert ended.lines == ["5"]


CALLS = {
    "submit_after": "refuses(scheduler.submit_after, 1, ran)",
    "submit_at_ns": "refuses(scheduler.submit_at_ns, 1, ran)",
    "submit_many": "refuses(scheduler.submit_many, [ran])",
    "map": "refuses(lambda: list(scheduler.map(int, [1])))",
    "with_options": 'refuses(scheduler.with_options(name="x").submit, ran)',
    "result": "refuses(running.result)",
    "exception": "refuses(queued[0].exception)",
    "wait": "refuses(concurrent.futures.wait, [running, finished])",
    "as_completed": "refuses(lambda: list(concurrent.futures.as_completed([running])))",
    "stats": "refuses(scheduler.stats)",
    "tasks": "refuses(scheduler.tasks)",
    "await_termination": "refuses(scheduler.await_termination)",
    "await_termination(1)": "refuses(scheduler.await_termination, 1)",
    "shutdown": "refuses(scheduler.shutdown)",
    "shutdown_now": "refuses(scheduler.shutdown_now)",
    "finished": "assert finished.result() == 7 and finished.done() and not finished.cancelled()",
    "wait for finished": "assert concurrent.futures.wait([finished]).done == {finished}",
    "as_completed of finished": (
        "assert list(concurrent.futures.as_completed([finished])) == [finished]"
    ),
    "repr": "repr(scheduler), repr(running), repr(queued[0]), repr(finished)",
    "drop": "del scheduler, running, queued, finished; gc.collect()",
    "callback": "finished.add_done_callback(lambda task: task.result())",
}


def test_c36_every_call_in_the_child_returns_or_refuses_at_once(engine):
    ended = children.run(
        STARTED
        + f"""
import concurrent.futures, gc
calls = {CALLS}
for name, call in calls.items():
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        exec(call)
        sys.exit()
    if reap(pid):
        print(name)
release.set()
assert scheduler.shutdown(timeout=30).complete
assert runs() == 5, runs()
""",
        engine,
    )
    assert ended.lines == [], f"not as they should be\n{ended.err}"
    ended.check()


def test_c36_a_new_scheduler_works_in_the_child(engine):
    children.run(
        STARTED
        + """
pid = os.fork()
if not pid:
    with Scheduler(2) as own:
        assert own.submit(sum, [1, 2]).result(10) == 3
        assert own.submit_after(0.01, int).result(10) == 0
        assert duepool.current_task() is None
    left_open = Scheduler(2, exit_grace=1)
    left_open.submit(ran).result(10)
    left_open.submit_after(3600, ran)
    sys.exit()
assert reap(pid) == 0
assert runs() == 1
release.set()
scheduler.shutdown()
assert runs() == 6
""",
        engine,
    ).check()


def test_c36_a_child_of_the_child(engine):
    children.run(
        STARTED
        + """
def smoke():
    with Scheduler(1) as own:
        assert own.submit(sum, [1, 2]).result(10) == 3

first = os.fork()
if not first:
    own = Scheduler(1)
    held = own.submit(time.sleep, 0.2)
    second = os.fork()
    if not second:
        for each in (scheduler, own):
            refuses(each.submit, ran)
        for each in (running, held):
            refuses(each.result, 2)
        assert finished.result(2) == 7
        smoke()
        sys.exit()
    assert reap(second) == 0
    assert held.result(10) is None
    refuses(scheduler.submit, ran)
    own.shutdown()
    smoke()
    sys.exit()
assert reap(first) == 0
release.set()
scheduler.shutdown()
assert runs() == 5
""",
        engine,
    ).check()


@pytest.mark.parametrize("end", ["os._exit(0)", "return", "raise ValueError", "sys.exit(0)"])
def test_c36_a_body_that_forks(engine, end):
    """The child's only thread is the copy of the worker; it ends with the body and runs no more."""
    children.run(
        FORK
        + f"""
scheduler = Scheduler(1)

def body():
    pid = os.fork()
    if not pid:
        refuses(scheduler.submit, ran)
        refuses(queued[0].result, 2)
        assert duepool.current_task() is None
        assert not duepool.cancel_requested()
        with Scheduler(1) as own:
            assert own.submit(sum, [1, 2]).result(10) == 3
        {end}
    assert duepool.current_task() is not None
    return reap(pid)

go = threading.Event()
first = scheduler.submit(go.wait)
forking = scheduler.submit(body)
queued = [scheduler.submit(ran) for _ in range(5)]
go.set()
assert forking.result(30) == 0
scheduler.shutdown()
assert runs() == 5, runs()
""",
        engine,
    ).check()


def test_c36_a_tick_that_forks(engine):
    children.run(
        FORK
        + """
scheduler = Scheduler(0)

def body():
    pids.append(os.fork())

pids = []
forking, rest = scheduler.submit(body), scheduler.submit(ran)
try:
    scheduler.tick()
except SchedulerClosed:
    assert not pids[0]
    sys.exit()
assert pids[0]
assert reap(pids[0]) == 0
assert forking.done() and rest.done()
assert runs() == 1, runs()
""",
        engine,
    ).check()


def test_c36_forks_while_other_threads_keep_the_scheduler_busy(engine):
    children.run(
        FORK
        + f"""
scheduler = Scheduler(2, capacity=None)
stop = threading.Event()
counts = []

def busy():
    n = 0
    while not stop.is_set():
        scheduler.submit(int)
        scheduler.submit_after(0.001, int).cancel()
        n += 2
        if n % 1000 == 0:
            time.sleep(0.001)
    counts.append(n)

threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
probe = scheduler.submit_after(3600, int)
for _ in range({C36_FORKS * 4}):
    pid = os.fork()
    if not pid:
        # Whatever lock was held at the fork is held for ever here.
        refuses(scheduler.submit, ran)
        refuses(probe.result, 2)
        refuses(scheduler.shutdown)
        sys.exit()
    assert reap(pid) == 0
stop.set()
for thread in threads:
    thread.join()
probe.cancel()
assert scheduler.shutdown(timeout=30).complete
assert scheduler.stats().admitted == sum(counts) + 1
""",
        engine,
    ).check()


def test_c36_the_parent_leaves_without_a_shutdown_after_the_fork(engine):
    ended = children.run(
        STARTED
        + """
pid = os.fork()
if not pid:
    sys.exit()
assert reap(pid) == 0
release.set()
left()
""",
        engine,
    ).check()
    assert ended.leaving_s < 5 + 2


def test_c36_multiprocessing_by_fork(engine):
    children.run(
        STARTED
        + """
import multiprocessing

def target():
    refuses(scheduler.submit, ran)
    refuses(running.result, 2)
    with Scheduler(1) as own:
        assert own.submit(int).result(10) == 0

process = multiprocessing.get_context("fork").Process(target=target)
process.start()
process.join(20)
assert process.exitcode == 0, process.exitcode
release.set()
scheduler.shutdown()
assert runs() == 5
""",
        engine,
    ).check()
