"""Ctrl-C while a body is handed over, at every place where Python may raise it."""

import pytest

from . import support

pytestmark = pytest.mark.skipif(
    not hasattr(__import__("signal"), "setitimer"), reason="signals cannot be timed here"
)

PRELUDE = """
import _thread, concurrent.futures as cf, logging, queue, random, signal, sys, threading, time
import duepool
from duepool import InlineExecutor, ManualClock, Scheduler, TaskState
CAMPAIGN_S, SOON = 0.8, 30
logging.disable(logging.CRITICAL)
sys.unraisablehook = lambda _: None
signal.signal(signal.SIGINT, signal.default_int_handler)
armed, hits, rounds = [], 0, 0

class Condition(_thread.RLock):
    # The one of a Future is Python code: a signal that strikes in its __enter__ leaves it locked.
    def notify_all(self):
        pass

class Safe(cf.Future):
    def __init__(self):
        super().__init__()
        self._condition = Condition()

class Pool(cf.Executor):
    # Nothing in submit can be cut short by half, as it can in ThreadPoolExecutor's.
    def __init__(self, workers):
        self.calls = queue.SimpleQueue()
        for _ in range(workers):
            threading.Thread(target=self.work, daemon=True).start()

    def submit(self, fn, /, *args):
        future = Safe()
        self.calls.put((future, fn, args))
        return future

    def work(self):
        while True:
            future, fn, args = self.calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    value = fn(*args)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(value)
            del future, fn, args

def strike(*_):
    global hits
    if armed:
        armed.clear()
        hits += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)

def struck(call, longest_s):
    # call(), with one alarm after a random time.
    global rounds
    rounds += 1
    try:
        try:
            armed.append(None)
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))
            call()
            for _ in range(300):
                pass
        finally:
            armed.clear()
    except KeyboardInterrupt:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)

def until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end, "hangs"
        time.sleep(0.0005)

def ended(scheduler, tasks, ran):
    until(lambda: all(task.done() for task in tasks))
    for task in tasks:
        times = ran.count(task.id)
        if task.state == TaskState.SUCCEEDED:
            assert times == 1, (task, times)
        else:
            # Struck before it began: then it never begins.
            assert isinstance(task.exception(), KeyboardInterrupt), repr(task.exception())
            assert times == 0, (task, times)
    hand = scheduler._engine.config.hand
    until(lambda: not hand._flying and not hand._landing)
    stats = scheduler.stats()
    assert stats.running == 0, stats

def rest(scheduler):
    # Hands over what is left, uninterrupted.
    until(lambda: scheduler.tick() == 0 and scheduler.stats().queued == 0)

"""


@pytest.mark.parametrize("limit", [1, 4])
def test_in_a_tick_that_hands_over_to_threads(engine, tmp_path, limit):
    out = support.script(
        tmp_path,
        engine,
        PRELUDE
        + f"""
end = time.monotonic() + CAMPAIGN_S
pool = Pool(2)
while time.monotonic() < end:
    scheduler = Scheduler(0, executor=pool, max_in_flight={limit})
    ran, tasks = [], []
    for n in range(1, 7):
        tasks.append(scheduler.submit(lambda: ran.append(duepool.current_task().id)))
    struck(scheduler.tick, 300e-6)
    rest(scheduler)
    ended(scheduler, tasks, ran)
    # Nothing of it comes later.
    before = list(ran)
    probes = [pool.submit(int) for _ in range(2)]
    until(lambda: all(probe.done() for probe in probes))
    assert ran == before
print(hits > rounds // 20)
""",
    )
    assert out == "True\n", "the campaign hardly struck"


def test_in_a_tick_whose_bodies_run_in_submit(engine, tmp_path):
    out = support.script(
        tmp_path,
        engine,
        PRELUDE
        + """
class Plain(cf.Executor):
    def submit(self, fn, /, *args):
        future = Safe()
        try:
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

end = time.monotonic() + CAMPAIGN_S
while time.monotonic() < end:
    executor = random.choice((InlineExecutor, Plain))()
    scheduler = Scheduler(0, executor=executor, max_in_flight=2)
    ran, tasks = [], []
    for n in range(1, 7):
        tasks.append(scheduler.submit(lambda: ran.append(duepool.current_task().id)))
    struck(scheduler.tick, 200e-6)
    rest(scheduler)
    until(lambda: all(task.done() for task in tasks))
    for task in tasks:
        # A body that was struck at its end has had its effect, and has failed.
        assert ran.count(task.id) == 1 or isinstance(task.exception(), KeyboardInterrupt)
        assert ran.count(task.id) <= 1
    assert not scheduler._engine.config.hand._flying
print(hits > rounds // 20)
""",
    )
    assert out == "True\n", "the campaign hardly struck"


def test_while_what_is_handed_over_is_cancelled(engine, tmp_path):
    out = support.script(
        tmp_path,
        engine,
        PRELUDE
        + """
end = time.monotonic() + CAMPAIGN_S
pool = Pool(1)
while time.monotonic() < end:
    gate = threading.Event()
    scheduler = Scheduler(0, executor=pool, max_in_flight=6)
    told = []
    first = scheduler.submit(gate.wait, SOON)
    tasks = [scheduler.submit(int) for _ in range(5)]
    for task in tasks:
        task.add_done_callback(told.append)
    assert scheduler.tick() == 6
    struck(lambda: scheduler.cancel_many(tasks), 200e-6)
    gate.set()
    until(lambda: all(task.done() for task in [first, *tasks]))
    until(lambda: len(told) == 5)
    assert not [task for task in tasks if task.state == TaskState.FAILED]
    until(lambda: not scheduler._engine.config.hand._flying)
    assert scheduler.stats().running == 0
print(hits > rounds // 20)
""",
    )
    assert out == "True\n", "the campaign hardly struck"


def test_in_the_main_thread_while_the_dispatcher_hands_over(engine, tmp_path):
    support.script(
        tmp_path,
        engine,
        PRELUDE
        + """
pool = cf.ThreadPoolExecutor(2)
scheduler = Scheduler(executor=pool, max_in_flight=2)
task = scheduler.submit(time.sleep, 0.7)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
start = time.monotonic()
try:
    task.result()
except KeyboardInterrupt:
    assert time.monotonic() - start < 0.65
else:
    raise AssertionError("the wait was not interrupted")
assert scheduler.submit(int, "7").result(SOON) == 7
assert task.result(SOON) is None
scheduler.shutdown()
""",
    )
