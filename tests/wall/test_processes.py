"""The watch over the wall clock across forks and at interpreter exit; each in a child process."""

import os

import pytest
from cases import children, size
from cases.children import SLACK_S

pytestmark = children.LIMIT

C35_EXITS = size(1, 20)

SHARED = """
from datetime import UTC, datetime, timedelta
from duepool import _wall, _wall_watch
shift = [0]
_wall.system_ns = lambda: time.time_ns() + shift[0]

def soon(seconds):
    return datetime.now(UTC) + timedelta(seconds=seconds)

def watches():
    return [thread for thread in threading.enumerate() if thread.name == _wall_watch.NAME]

def watched(count):
    # Wait until so many threads watch.
    end = time.monotonic() + 20
    while len(watches()) != count:
        assert time.monotonic() < end
        time.sleep(0.001)

"""

FORK = (
    SHARED
    + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is the subject

def descriptors():
    # Which descriptors there are of the kind that the watch has.
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + fd)
        except FileNotFoundError:
            continue
        if "timerfd" in target or "eventfd" in target:
            found.append(fd)
    return found

def in_child(body):
    # Run body in a fork; it must end by itself with exit code 0.
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            body()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the child hangs")

"""
)

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def run(script: str, engine: str, before: str = SHARED) -> children.Ended:
    return children.run(before + script, engine).check()


@forks
@pytest.mark.parametrize("linux", [True, False])
def test_a_fork_has_none_and_starts_its_own(engine, linux):
    ended = children.run(
        FORK
        + ("" if linux else "_wall_watch.new_bell = _wall_watch.PlainBell\n")
        + """
scheduler = Scheduler(1)
task = scheduler.submit_at(soon(3600), print)
watched(1)

def child():
    assert not _wall_watch._watch.crews and not watches()
    if os.path.isdir("/proc/self/fd"):
        assert descriptors() == [], descriptors()
    shift[0] += 7200 * 10**9
    scheduler.wake()  # the parent's: nothing
    own = Scheduler(1)
    due = own.submit_at(soon(3600) + timedelta(hours=2), str, "in the child")
    watched(1)
    shift[0] += 7200 * 10**9
    own.wake()
    print(due.result(10), flush=True)
    own.shutdown()

print(in_child(child), flush=True)
# The parent's goes on undisturbed.
assert len(watches()) == 1
shift[0] += 7200 * 10**9
before = task.due_ns
_wall_watch._watch.look()
print(task.result(10), before - task.due_ns > 3500 * 10**9)
scheduler.shutdown()
""",
        engine,
    ).check()
    assert ended.lines == ["in the child", "0", "", "None True"]


@forks
def test_a_fork_without_a_scheduler_of_its_own_leaves_quietly(engine):
    ended = run(
        """
scheduler = Scheduler(0)
scheduler.submit_at(soon(3600), print)

def child():
    pass

print(in_child(child))
pid = os.fork()
if not pid:
    sys.exit(0)  # as scripts leave, with all exit hooks
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
        engine,
        FORK,
    )
    assert ended.lines == ["0", "0"]


LEAVING = {
    "falls off the end": "",
    "sys.exit": "sys.exit()",
    "in a thread": "threading.Thread(target=sys.exit).start()",
    "while it steps": """
def stepping():
    while True:
        shift[0] += 3600 * 10**9
        _wall_watch._watch.look()
threading.Thread(target=stepping, daemon=True).start()
""",
    "while it starts and ends": """
_wall_watch.LINGER_S = 0
def coming_and_going():
    while True:
        try:
            schedulers[0].submit_at(soon(3600), print).cancel()
        except SchedulerClosed:
            return
threading.Thread(target=coming_and_going, daemon=True).start()
""",
}


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("linux", [True, False])
def test_c35_the_interpreter_leaves_with_tasks_that_are_kept(engine, how, linux):
    for _ in range(C35_EXITS):
        ended = run(
            ("" if linux else "_wall_watch.new_bell = _wall_watch.PlainBell\n")
            + """
schedulers = [Scheduler(workers, exit_grace=0.2) for workers in (0, 1, 3)]
for scheduler in schedulers:
    for i in range(20):
        scheduler.submit_at(soon(3600 + i), int)
left()
"""
            + LEAVING[how],
            engine,
        )
        assert ended.lines == []
        assert ended.leaving_s < 0.2 + SLACK_S


def test_an_exit_handler_may_still_submit(engine):
    ended = run(
        """
scheduler = Scheduler(1)
scheduler.submit_at(soon(3600), print)

def late():
    try:
        scheduler.submit_at(soon(3600), print)
    except SchedulerClosed:
        print("closed")
    try:
        Scheduler(0).submit_at(soon(3600), print)
    except SchedulerClosed:
        print("closed")

atexit.register(late)
left()
""",
        engine,
    )
    assert ended.lines == ["closed", "closed"]
    assert ended.leaving_s < SLACK_S


def test_dropped_at_exit_inside_garbage(engine):
    ended = run(
        """
class Owner:
    def __init__(self, workers):
        self.scheduler = Scheduler(workers)
        self.task = self.scheduler.submit_at(soon(3600), self.body)
    def body(self):
        pass

owners = [Owner(workers) for workers in (0, 1) for _ in range(5)]
owners.append(owners)
del owners
left()
""",
        engine,
    )
    assert ended.leaving_s < SLACK_S
