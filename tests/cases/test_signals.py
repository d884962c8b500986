"""C30: Ctrl-C while the main thread waits; without the blocking submit, which comes later."""

import pytest

from . import FULL, children

AT_S = 0.5 if FULL else 0.1
"""Real seconds from the beginning of a wait to the signal."""

# A signal to the process, as a terminal sends it, once main waits.
INTERRUPT = (
    f"AT_S = {AT_S}\n"
    + """
import _thread
from concurrent.futures import as_completed, wait

# A process that was started in the background ignores Ctrl-C, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt_at(seconds):
    def send():
        time.sleep(seconds)
        sent.append(time.monotonic())
        if os.name == "posix":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            _thread.interrupt_main()
    sent = []
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return sent

def interrupted(call):
    # Seconds from the signal to KeyboardInterrupt in main; fails when call() ends otherwise.
    try:
        sent = interrupt_at(AT_S)
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    raise AssertionError("the wait ended without KeyboardInterrupt")

def smoke(scheduler):
    assert scheduler.submit(sum, [1, 2, 3]).result(10) == 6

def running(scheduler, wait, *args):
    # A task whose body has begun to wait: what cancels the queued ones does not touch it.
    def body():
        begun.set()
        return wait(*args)
    begun = threading.Event()
    task = scheduler.submit(body)
    assert begun.wait(30)
    return task

"""
)

OPEN = {
    "result": "task.result()",
    "result with a time-out": "task.result(1e9)",
    "exception": "task.exception()",
    "await_termination": "scheduler.await_termination()",
    "await_termination with a time-out": "scheduler.await_termination(3600)",
    "wait": "wait([task])",
    "as_completed": "list(as_completed([task]))",
    "map": "list(scheduler.map(release.wait, [30]))",
}

CLOSING = {
    "shutdown": "scheduler.shutdown()",
    "shutdown with a time-out": "scheduler.shutdown(timeout=3600)",
    "shutdown and cancel": "scheduler.shutdown(cancel_futures=True)",
    "stop": "scheduler.stop(3600)",
}


@pytest.mark.parametrize("way", OPEN)
def test_c30_an_interrupt_ends_the_wait_and_the_scheduler_goes_on(engine, way):
    ended = children.run(
        INTERRUPT
        + f"""
release = threading.Event()
scheduler = Scheduler(1)
task = running(scheduler, release.wait, 30)
print(interrupted(lambda: {OPEN[way]}))
assert task.state == TaskState.RUNNING, task
release.set()
assert task.result(10) is True
smoke(scheduler)
assert scheduler.shutdown(timeout=10).complete
""",
        engine,
    ).check()
    assert float(ended.out) < 1


@pytest.mark.parametrize("way", CLOSING)
def test_c30_an_interrupted_shutdown_can_be_called_again(engine, way):
    ended = children.run(
        INTERRUPT
        + f"""
release = threading.Event()
scheduler = Scheduler(1)
task = running(scheduler, release.wait, 30)
queued = scheduler.submit(int)
print(interrupted(lambda: {CLOSING[way]}))
assert task.state == TaskState.RUNNING, task
try:
    scheduler.submit(int)
except SchedulerClosed:
    pass
else:
    raise AssertionError("a closed scheduler accepted a task")
release.set()
assert scheduler.shutdown(timeout=10).complete
assert scheduler.await_termination(10)
assert task.result(0) is True
assert queued.done()
assert queued.cancelled() == ("cancel" in {way!r})
smoke(Scheduler(1))
""",
        engine,
    ).check()
    assert float(ended.out) < 1


def test_c30_one_wait_after_the_other_on_one_scheduler(engine):
    ended = children.run(
        INTERRUPT
        + """
scheduler = Scheduler(2)
release = threading.Event()
task = running(scheduler, release.wait, 30)
later = scheduler.submit_after(3600, int)
for call in (task.result, later.result, scheduler.await_termination, lambda: wait([task, later])):
    print(interrupted(call))
    smoke(scheduler)
later.cancel()
release.set()
scheduler.shutdown()
""",
        engine,
    ).check()
    assert len(ended.lines) == 4
    assert all(float(seconds) < 1 for seconds in ended.lines)


def test_c30_with_statement_interrupted_inside_then_at_its_end(engine):
    ended = children.run(
        INTERRUPT
        + """
release = threading.Event()
def use():
    with Scheduler(1) as scheduler:
        task = running(scheduler, release.wait, 30)
        try:
            task.result()
        finally:
            interrupt_at(AT_S)
            seen.append(task)
seen = []
print(interrupted(use))
release.set()
assert seen[0].result(10) is True
""",
        engine,
    ).check()
    assert float(ended.out) < 1 + 2 * AT_S


def test_c30_a_handler_that_does_not_raise_leaves_the_wait_as_it_was(engine):
    children.run(
        INTERRUPT
        + """
release = threading.Event()
scheduler = Scheduler(1)
task = running(scheduler, release.wait, 30)
order = []

def handler(number, frame):
    # Everything a handler may want: while main waits in it, the scheduler is not locked.
    order.append(scheduler.submit(int))
    order.append(scheduler.submit_after(3600, int).cancel())
    repr(scheduler), repr(task), scheduler.stats(), scheduler.tasks()
    release.set()

signal.signal(signal.SIGINT, handler)
interrupt_at(AT_S)
assert task.result() is True
assert order[0].result(10) == 0
assert order[1] is True
""",
        engine,
    ).check()


@pytest.mark.parametrize("call", ["shutdown()", "shutdown_now()", "stop(5, 5)"])
def test_c30_a_handler_that_shuts_down_while_main_waits(engine, call):
    children.run(
        INTERRUPT
        + f"""
release = threading.Event()
scheduler = Scheduler(2)
task = running(scheduler, release.wait, 30)

def handler(number, frame):
    release.set()
    scheduler.{call}

signal.signal(signal.SIGINT, handler)
interrupt_at(AT_S)
assert scheduler.await_termination(30)
assert task.done()
""",
        engine,
    ).check()


def test_c30_the_body_that_waits_is_not_interrupted_main_is(engine):
    ended = children.run(
        INTERRUPT
        + """
scheduler = Scheduler(2)
inner = scheduler.submit_after(3600, int)
outer = running(scheduler, inner.exception)
print(interrupted(outer.result))
assert outer.state == TaskState.RUNNING
scheduler.shutdown_now()
assert scheduler.await_termination(10)
""",
        engine,
    ).check()
    assert float(ended.out) < 1


def test_c30_in_a_tick_the_interrupt_is_the_outcome_of_the_body_and_raised(engine):
    children.run(
        INTERRUPT
        + """
scheduler = Scheduler(0)
task, rest = scheduler.submit(time.sleep, 30), scheduler.submit(int)
assert interrupted(scheduler.tick) < 1
assert isinstance(task.exception(0), KeyboardInterrupt)
assert rest.state == TaskState.QUEUED
assert scheduler.tick() == 1
assert rest.result(0) == 0
""",
        engine,
    ).check()


def test_c30_in_duepool_sleep_outside_a_body(engine):
    ended = children.run(
        INTERRUPT + "print(interrupted(lambda: duepool.sleep(30)))", engine
    ).check()
    assert float(ended.out) < 1


def test_c30_asyncio_run_ends_and_the_awaited_task_is_asked_to_stop(engine):
    ended = children.run(
        INTERRUPT
        + """
import asyncio
scheduler = Scheduler(1)

def body():
    duepool.sleep(30)

async def main():
    await task

task = scheduler.submit(body)
print(interrupted(lambda: asyncio.run(main())))
assert wait([task], 10).not_done == set()
assert task.state == TaskState.CANCELLED, task
smoke(scheduler)
""",
        engine,
    ).check()
    assert float(ended.out) < 1
