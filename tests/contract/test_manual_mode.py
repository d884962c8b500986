"""§3: manual mode: ``max_workers=0`` and all the rules of ``tick()``."""

import concurrent.futures
import threading

import pytest

import duepool
from duepool import WouldDeadlock

from .support import (
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    Aside,
    child,
    counters,
    nothing,
)

S = 1_000_000_000


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


def stop_with(error):
    raise error


def test_there_is_no_thread_at_all(make, clock):
    before = set(threading.enumerate())
    scheduler = make(0, clock=clock)
    scheduler.submit_many([nothing] * 10)
    assert scheduler.tick() == 10
    scheduler.shutdown()
    assert set(threading.enumerate()) == before


def test_bodies_run_on_the_calling_thread_in_order_and_are_counted(manual, clock):
    ran = []

    def body(name):
        ran.append((name, threading.get_ident()))

    for delay, name in ((3, "c"), (1, "a"), (3, "d"), (2, "b"), (4, "e")):
        manual.submit_after(delay, body, name)
    assert manual.tick() == 0
    clock.advance(3)
    assert manual.tick() == 4
    assert ran == [(name, threading.get_ident()) for name in "abcd"]
    assert manual.tick() == 0
    clock.advance(1)
    aside = Aside(manual.tick)  # any thread may tick
    assert aside.result() == 1
    assert ran[-1] == ("e", aside.thread.ident)


def test_tick_runs_what_was_there_at_its_entry(manual, clock):
    ran = []

    def breed(depth):
        ran.append(depth)
        manual.submit(breed, depth + 1)
        manual.submit_at_ns(0, ran.append, "past")
        manual.submit_after(0, ran.append, "after")

    clock.advance(1)
    manual.submit(breed, 1)
    assert manual.tick() == 1
    assert ran == [1]
    assert manual.stats().queued == 3
    assert manual.tick() == 3
    assert ran == [1, 2, "past", "after"]


def test_tick_reads_the_clock_once(make):
    class Counting:
        reads = 0

        def now_ns(self):
            self.reads += 1
            return 5

    clock = Counting()
    scheduler = make(0, clock=clock)
    scheduler.submit_many([nothing] * 50)
    before = clock.reads
    assert scheduler.tick() == 50
    # One reading for the claims; each task's end has one of its own.
    assert clock.reads - before <= 51


def test_a_body_that_moves_the_clock_makes_nothing_due_in_this_tick(manual, clock):
    first = manual.submit(clock.advance, 10)
    second = manual.submit_after(5, nothing)
    assert manual.tick() == 1
    assert (first.state, second.state) == (SUCCEEDED, QUEUED)
    assert manual.tick() == 1


def test_a_task_moved_by_a_body_follows_its_new_due(manual, clock):
    later = []
    first = manual.submit(lambda: [task.reschedule(5) for task in later])
    later += [manual.submit(nothing), manual.submit(nothing)]
    assert manual.tick() == 1
    assert first.result() == [True, True]
    assert manual.next_due_ns == 5 * S
    clock.advance(5)
    assert manual.tick() == 2


def test_a_task_pulled_forward_by_a_body_may_run_at_once(manual):
    ran = []
    later = manual.submit_after(5, ran.append, "later")
    manual.submit(later.reschedule, 0)
    total = manual.tick()
    assert total + manual.tick() == 2
    assert ran == ["later"]


def test_a_nested_tick_is_refused_and_harms_nothing(manual):
    def body():
        with pytest.raises(RuntimeError, match="tick"):
            manual.tick()
        return "unharmed"

    task, following = manual.submit(body), manual.submit(nothing)
    assert manual.tick() == 2
    assert task.result() == "unharmed"
    assert following.state == SUCCEEDED


def test_a_nested_tick_from_a_callback_is_refused_too(manual):
    seen = []

    def callback(_task):
        try:
            manual.tick()
        except RuntimeError as error:
            seen.append(str(error))

    manual.submit(nothing).add_done_callback(callback)
    manual.submit(nothing)
    assert manual.tick() == 2
    assert len(seen) == 1


def test_a_concurrent_tick_is_refused(manual, gate):
    task = manual.submit(gate, "mine")
    following = manual.submit(nothing)
    aside = Aside(manual.tick)
    gate.wait_entered()
    with pytest.raises(RuntimeError, match="tick"):
        manual.tick()
    assert (task.state, following.state) == (RUNNING, QUEUED)
    gate.release.set()
    assert aside.result() == 2
    assert task.result() == "mine"
    assert manual.tick() == 0


def test_a_body_may_tick_another_scheduler(make, manual, clock):
    other = make(0, clock=clock)
    inner = other.submit(lambda: duepool.current_task().id)
    outer = manual.submit(lambda: (other.tick(), duepool.current_task() is outer))
    assert manual.tick() == 1
    assert outer.result() == (1, True)
    assert inner.result() == 1
    assert duepool.current_task() is None


def test_tick_on_a_scheduler_with_workers_is_refused(make, clock):
    scheduler = make(1, clock=clock)
    with pytest.raises(RuntimeError, match="tick"):
        scheduler.tick()
    assert scheduler.submit(lambda: "well").result(SOON) == "well"
    scheduler.shutdown()
    with pytest.raises(RuntimeError, match="tick"):
        scheduler.tick()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_of_a_body_are_stored_then_raised(manual, kind):
    class Own(kind):
        pass

    error = Own("now")
    told = []
    first, bad = manual.submit(nothing), manual.submit(stop_with, error)
    bad.add_done_callback(lambda task: told.append(task.state))
    rest = [manual.submit(nothing), manual.submit(nothing)]
    with pytest.raises(kind) as caught:
        manual.tick()
    assert caught.value is error
    assert (first.state, bad.state) == (SUCCEEDED, FAILED)
    assert bad.exception() is error
    assert told == [FAILED]
    assert [task.state for task in rest] == [QUEUED, QUEUED]
    assert duepool.current_task() is None
    assert manual.tick() == 2
    assert [task.state for task in rest] == [SUCCEEDED, SUCCEEDED]


@pytest.mark.parametrize(
    "kind", [ValueError, GeneratorExit, StopIteration, BaseException, duepool.CancelRequested]
)
def test_other_exceptions_stay_in_their_task(manual, kind):
    error = kind("stays")
    bad, following = manual.submit(stop_with, error), manual.submit(nothing)
    assert manual.tick() == 2
    assert bad.exception() is error
    assert following.state == SUCCEEDED


def test_shutdown_runs_what_is_due_and_never_blocks(manual, clock):
    due = [manual.submit(nothing) for _ in range(3)]
    later = manual.submit_after(5, nothing)
    report = manual.shutdown(wait=True)
    assert [task.state for task in due] == [SUCCEEDED] * 3
    assert later.state == QUEUED
    assert (report.succeeded, report.queued, report.complete) == (3, 1, False)
    assert manual.await_termination(0) is False
    clock.advance(5)
    assert manual.tick() == 1  # it still works
    assert later.state == SUCCEEDED
    assert manual.await_termination(0) is True
    assert manual.tick() == 0


def test_the_context_manager_runs_what_is_due(make, clock):
    with make(0, clock=clock) as scheduler:
        due, later = scheduler.submit(nothing), scheduler.submit_after(1, nothing)
    assert (due.state, later.state) == (SUCCEEDED, QUEUED)
    with pytest.raises(duepool.SchedulerClosed):
        scheduler.submit(nothing)
    clock.advance(1)
    assert scheduler.tick() == 1


def test_shutdown_without_waiting_runs_nothing(manual):
    task = manual.submit(nothing)
    manual.shutdown(wait=False)
    assert task.state == QUEUED
    assert manual.tick() == 1


def test_shutdown_in_a_body_lets_the_tick_go_on(manual, clock):
    reports = []
    first = manual.submit(lambda: reports.append(manual.shutdown(wait=True)))
    second, later = manual.submit(nothing), manual.submit_after(1, nothing)
    assert manual.tick() == 2
    assert (first.state, second.state, later.state) == (SUCCEEDED, SUCCEEDED, QUEUED)
    assert reports[0].complete is False
    clock.advance(1)
    assert manual.tick() == 1


@pytest.mark.parametrize("call", ["shutdown", "shutdown_now", "stop", "__exit__"])
def test_shutting_down_while_another_thread_ticks(manual, gate, call):
    task = manual.submit(gate)
    following = manual.submit(nothing)
    aside = Aside(manual.tick)
    gate.wait_entered()
    arguments = {"__exit__": (None, None, None), "stop": (0.05, 0.05)}.get(call, ())
    ending = Aside(getattr(manual, call), *arguments)
    try:
        ending.result(5)
    finally:
        gate.release.set()
    aside.result()
    hard = call in ("shutdown_now", "stop")
    assert task.state == (CANCELLED if hard else SUCCEEDED)
    assert following.state == (CANCELLED if hard else SUCCEEDED)
    assert manual.await_termination(SOON) is True


WAITS = {
    "result": lambda task: task.result(),
    "exception": lambda task: task.exception(),
    "wait": lambda task: concurrent.futures.wait([task]),
    "as_completed": lambda task: list(concurrent.futures.as_completed([task])),
}


@pytest.mark.parametrize("what", ["itself", "another"])
@pytest.mark.parametrize("how", WAITS)
def test_waiting_for_an_unfinished_task_on_the_ticking_thread(manual, how, what):
    def body():
        with pytest.raises(WouldDeadlock):
            WAITS[how](tasks[0 if what == "itself" else 1])
        return "went on"

    tasks = []
    tasks.append(manual.submit(body))
    tasks.append(manual.submit(nothing))
    aside = Aside(manual.tick)  # a hang is seen from here
    assert aside.result() == 2
    assert tasks[0].result() == "went on"
    assert tasks[1].state == SUCCEEDED


def test_waiting_in_a_callback_on_the_ticking_thread(manual):
    seen = []

    def callback(_task):
        try:
            other.result()
        except WouldDeadlock:
            seen.append("refused")

    manual.submit(nothing).add_done_callback(callback)
    other = manual.submit(nothing)
    assert Aside(manual.tick).result() == 2
    assert seen == ["refused"]


def test_waiting_that_can_end_is_allowed_while_ticking(make, manual, clock):
    other = make(1)
    done = manual.submit(lambda: "done")

    def body():
        with pytest.raises(TimeoutError):
            later.result(0.01)
        assert concurrent.futures.wait([later], timeout=0.01).not_done == {later}
        return done.result(), other.submit(lambda: "elsewhere").result()

    task = manual.submit(body)
    later = manual.submit_after(1, nothing)
    assert Aside(manual.tick).result() == 2
    assert task.result() == ("done", "elsewhere")


@pytest.mark.parametrize("seconds", [0.001, 1, 3600])
def test_sleep_on_the_ticking_thread(manual, seconds):
    def body():
        with pytest.raises(WouldDeadlock):
            duepool.sleep(seconds)
        duepool.sleep(0)
        return "awake"

    task = manual.submit(body)
    assert Aside(manual.tick).result() == 1
    assert task.result() == "awake"


def test_outside_a_tick_nothing_is_refused(manual):
    task = manual.submit(lambda: "ticked elsewhere")
    waiting = Aside(task.result)
    assert not waiting.ended()
    assert manual.tick() == 1
    assert waiting.result() == "ticked elsewhere"


def test_await_termination_inside_a_tick_is_refused(manual):
    def body():
        with pytest.raises(RuntimeError):
            manual.await_termination(1)
        with pytest.raises(RuntimeError):
            manual.await_termination()

    task = manual.submit(body)
    assert Aside(manual.tick).result() == 1
    assert task.exception() is None


def test_a_failure_of_a_callback_stays_in_the_log(manual, caplog):
    manual.submit(nothing).add_done_callback(lambda task: stop_with(SystemExit(5)))
    assert manual.submit(nothing)
    assert manual.tick() == 2
    assert counters(manual)["succeeded"] == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_tick_serves_signals(engine):
    child(
        """
        import signal, time, duepool
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        scheduler = duepool.Scheduler(0)
        end = time.monotonic() + 20
        from collections import deque
        many = deque(maxlen=1)
        while not seen and time.monotonic() < end:
            scheduler.submit_many([(many.append, 1)] * 1000)
            assert scheduler.tick() == 1000
        assert seen, "the handler never ran"
        """,
        engine,
    )
