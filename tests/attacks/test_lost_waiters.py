"""When a task has ended everybody is told, whatever is raised on the way, and in a safe order."""

import concurrent.futures
import sys
import threading

import pytest

import duepool
from duepool import BrokenScheduler, TaskState

from .support import SOON, child, posix_signals

_WAITS = {
    "result": "task.exception",
    "wait": "lambda: cf.wait([task])",
    "as_completed": "lambda: list(cf.as_completed([task]))",
}


@posix_signals
@pytest.mark.parametrize("how", _WAITS)
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_interrupts_in_cancel_lose_no_waiter(engine, how, error):
    out = child(
        engine,
        f"""
        class Struck({error}):
            pass

        scheduler = Scheduler(2, history=0)
        campaign = Campaign(Struck)
        wait_for = lambda task: {_WAITS[how]}

        def wait(task):
            try:
                wait_for(task)()
            except cf.CancelledError:
                pass

        while campaign.goes_on():
            task = scheduler.submit_after(1000, int)
            waiter = threading.Thread(target=wait, args=(task,), daemon=True)
            waiter.start()
            time.sleep(0.0003)
            campaign.round(task.cancel)
            task.cancel()
            waiter.join(SOON)
            assert not waiter.is_alive(), (campaign.rounds, task)
            # Nobody has kept the lock of the condition.
            other = threading.Thread(target=task._condition.acquire, daemon=True)
            other.start()
            other.join(SOON)
            assert not other.is_alive(), campaign.rounds
        assert campaign.hits, campaign.rounds
        os._exit(0)
        """,
    )
    assert out == ""


@pytest.mark.parametrize("end", ["task.cancel", "scheduler.tick"])
def test_an_end_close_to_the_recursion_limit_loses_no_waiter(engine, end):
    out = child(
        engine,
        f"""
        import inspect
        scheduler = Scheduler(0, clock=ManualClock())
        end = lambda: {end}()
        """
        """
        def wait(task):
            try:
                cf.wait([task])
                task.result()
            except cf.CancelledError:
                pass

        def deep(n):
            return end() if n == 0 else deep(n - 1)

        for short_of in range(0, 90, 3):
            task = scheduler.submit(int)
            waiter = threading.Thread(target=wait, args=(task,), daemon=True)
            waiter.start()
            while not task._waiters:
                time.sleep(0)
            try:
                deep(sys.getrecursionlimit() - len(inspect.stack()) - short_of)
            except RecursionError:
                pass
            if not task.done():
                end()
            waiter.join(SOON)
            if waiter.is_alive():
                print("lost", short_of, task, flush=True)
                os._exit(0)
        os._exit(0)
        """,
    )
    assert out == ""


def _interrupt(task):
    raise KeyboardInterrupt


def test_an_interrupt_in_a_callback_comes_out_at_the_end_of_cancel(make, clock):
    scheduler = make(0, clock=clock)
    told = []
    task = scheduler.submit_after(1, int)
    for callback in (told.append, _interrupt, told.append, _interrupt, told.append):
        task.add_done_callback(callback)
    with pytest.raises(KeyboardInterrupt):
        task.cancel()
    assert told == [task] * 3
    assert task.cancelled()
    assert scheduler.stats().queued == 0


def test_an_interrupt_in_a_callback_comes_out_at_the_end_of_tick(make, clock):
    scheduler = make(0, clock=clock)
    told = []
    task = scheduler.submit(int)
    rest = scheduler.submit(int)
    for callback in (_interrupt, told.append):
        task.add_done_callback(callback)
    with pytest.raises(KeyboardInterrupt):
        scheduler.tick()
    assert told == [task]
    assert task.state == TaskState.SUCCEEDED
    assert rest.state == TaskState.QUEUED
    assert scheduler.tick() == 1


def test_an_interrupt_in_a_callback_is_only_logged_on_a_worker(make, gate, caplog):
    scheduler = make(1)
    told = []
    task = scheduler.submit(gate)
    task.add_done_callback(_interrupt)
    task.add_done_callback(told.append)
    gate.release.set()
    task.result(SOON)
    assert scheduler.submit(int).result(SOON) == 0
    assert told == [task]
    assert "KeyboardInterrupt" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, ValueError])
def test_everything_else_that_a_callback_raises_is_only_logged(make, clock, caplog, error):
    def fail(task):
        raise error

    scheduler = make(0, clock=clock)
    told = []
    for end in (scheduler.tick, None):
        task = scheduler.submit(int)
        task.add_done_callback(fail)
        task.add_done_callback(told.append)
        if end is None:
            assert task.cancel()
        else:
            assert end() == 1
    assert len(told) == 2
    assert caplog.text.count(f"{error.__name__}\n") == 2


def test_an_interrupt_in_a_callback_of_a_request_to_stop(make, gate):
    scheduler = make(1)
    told = []

    def body():
        token = duepool.token()
        token.on_request(lambda: _interrupt(None))
        token.on_request(lambda: told.append(1))
        gate()

    task = scheduler.submit(body)
    gate.wait_entered()
    with pytest.raises(KeyboardInterrupt):
        task.cancel()
    assert told == [1]
    assert task.state == TaskState.CANCEL_REQUESTED
    gate.release.set()
    assert scheduler.shutdown(timeout=SOON).complete
    assert task.cancelled()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupted_shutdown_now_leaves_nothing_that_nobody_will_ever_end(make, clock, workers):
    scheduler = make(workers, clock=clock)
    tasks = [scheduler.submit_after(1, int) for _ in range(5)]
    tasks[1].add_done_callback(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        scheduler.shutdown_now()
    # As the end of a ``with`` block does; without the time-out it would wait for ever.
    assert scheduler.shutdown(timeout=SOON / 10).complete
    assert all(task.cancelled() for task in tasks)


@pytest.mark.parametrize("wait", ["result", "wait"])
@pytest.mark.parametrize("end", ["cancel", "tick"])
def test_who_waits_is_told_before_any_callback_runs(make, clock, wait, end):
    # A callback may wait for a thread that waits for the task.
    scheduler = make(0, clock=clock)
    task = scheduler.submit(int)
    waiting = threading.Event()

    class Waiter(threading.Thread):
        def run(self):
            if wait == "wait":
                concurrent.futures.wait([task])
            else:
                waiting.set()
                try:
                    task.result()
                except duepool.CancelledError:
                    pass

    waiter = Waiter(daemon=True)
    ended = []

    def callback(_task):
        waiter.join(SOON)
        ended.append(not waiter.is_alive())

    task.add_done_callback(callback)
    waiter.start()
    if wait == "wait":
        while not task._waiters:
            pass
    else:
        waiting.wait(SOON)
        while not _waits_in_result(waiter):
            pass
    if end == "cancel":
        assert task.cancel()
    else:
        assert scheduler.tick() == 1
    assert ended == [True]


def _waits_in_result(thread):
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name == "acquire"


def test_what_an_argument_s_finalizer_waits_for_may_touch_the_task(make, clock):
    scheduler = make(0, clock=clock)
    ended = []

    class Argument:
        def __del__(self):
            # Threads that ask for the condition, and for the result, of the very task.
            for call in (
                lambda: concurrent.futures.wait([task], timeout=SOON),
                lambda: task.exception(SOON),
                lambda: scheduler.stats(),
            ):
                thread = threading.Thread(target=_quiet, args=(call,), daemon=True)
                thread.start()
                thread.join(SOON / 3)
                ended.append(not thread.is_alive())

    task = scheduler.submit(id, Argument())
    task._condition  # noqa: B018 - from now on ends are made with it held
    assert task.cancel()
    assert ended == [True] * 3


def _quiet(call):
    try:
        call()
    except duepool.CancelledError:
        pass


def test_an_initializer_that_fails_loses_no_waiter_of_a_shared_task(make, new_gate):
    gate = new_gate()
    between = threading.Event()

    class Argument:
        def __del__(self):
            between.wait(0.2)

    def fail():
        gate()
        raise ValueError

    for _ in range(3):
        scheduler = make(1, initializer=fail)
        gate.release.clear()
        gate.entered.clear()
        tasks = [scheduler.submit(id, Argument()) for _ in range(3)]
        waiters = []
        for how in ("early", "late"):
            for task in tasks:
                waiter = threading.Thread(
                    target=concurrent.futures.wait, args=([task],), daemon=True
                )
                waiters.append(waiter)
                waiter.start()
            if how == "early":
                gate.wait_entered()
                gate.release.set()
        for waiter in waiters:
            waiter.join(SOON)
            assert not waiter.is_alive()
        for task in tasks:
            with pytest.raises(BrokenScheduler):
                task.result(0)
            assert task.state == TaskState.FAILED


def test_locks_and_callables_may_watch_side_by_side(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.submit(int)
    lock, open_lock, gone = threading.Lock(), threading.Lock(), threading.Lock()
    lock.acquire()
    calls = []
    for watcher in (calls.append, lock, open_lock, gone):
        assert task._watch(watcher)
    assert task._unwatch(gone)
    assert not task._unwatch(gone)
    assert task.cancel()
    assert lock.acquire(blocking=False)
    assert calls == [task]
    assert not task._watch(lock)
