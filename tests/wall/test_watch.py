"""How steps are noticed, of the system's wall clock and of the user's.

The kernel's timer is a fake here, made ready by the test; the system's wall clock, as the package
reads it, is shifted. Neither touches the machine's clock.
"""

import ctypes
import errno
import os
import sys
import threading
import time

import pytest
from contract.support import wait_until

from duepool import ManualWallClock, _wall, _wall_watch

from .support import (
    HOUR,
    MS,
    START,
    FakeWall,
    S,
    kept,
    later,
    needs_linux,
    none_left,
    soon,
    the_thread,
    threads,
)

pytestmark = pytest.mark.usefixtures("quick")


@needs_linux
@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_is_noticed_at_once(make, timer, shift, workers):
    scheduler = make(workers)
    task = scheduler.submit_at(soon(3600), str, "here")
    due = task.due_ns
    wait_until(lambda: timer.armed, "the timer is armed")
    shift.append(-600 * S)
    timer.clock_was_set()
    wait_until(lambda: task.due_ns > due, "the step is noticed")
    assert abs(task.due_ns - due - 600 * S) < 50 * MS
    assert timer.armed == 2
    shift.append(2 * HOUR)
    timer.clock_was_set()
    wait_until(lambda: task.due_ns < due, "the second step is noticed")
    if workers:
        assert task.result(30) == "here"
    else:
        assert scheduler.tick() == 1


@needs_linux
def test_what_was_passed_runs_in_the_order_of_the_wall_clock(make, timer, shift, gate):
    """Ids do not decide where due times differ."""
    scheduler = make(1)
    scheduler.submit(gate)
    gate.wait_entered()
    ran: list[int] = []
    tasks = [scheduler.submit_at(soon(3600 - i), ran.append, i) for i in range(5)]
    wait_until(lambda: timer.armed, "the timer is armed")
    shift.append(2 * HOUR)
    timer.clock_was_set()
    wait_until(lambda: all(t.due_ns <= scheduler.now_ns() for t in tasks), "the step is noticed")
    gate.release.set()
    scheduler.shutdown()
    assert ran == [4, 3, 2, 1, 0]


@needs_linux
def test_a_step_before_the_timer_was_armed_is_noticed(make, timer, shift, monkeypatch):
    """Between the admission and the first look of the thread."""
    due: list[int] = []

    def arm(fd):
        shift.append(-600 * S)
        timer.armed += 1

    monkeypatch.setattr(_wall_watch, "arm", arm)
    before = time.monotonic_ns()
    task = make(0).submit_at(soon(3600), print)
    due.append(task.due_ns)
    wait_until(lambda: task.due_ns - before > HOUR + 599 * S, "the step is noticed")


@needs_linux
def test_a_step_while_it_is_armed_is_noticed(make, timer, shift):
    scheduler = make(0)
    task = scheduler.submit_at(soon(3600), print)
    due = task.due_ns
    wait_until(lambda: timer.armed, "the timer is armed")
    timer.again = 1  # ECANCELED from arming: armed, and the clock was set once more
    shift.append(-60 * S)
    timer.clock_was_set()
    wait_until(lambda: task.due_ns > due, "the step is noticed")
    shift.append(-60 * S)
    timer.clock_was_set()
    wait_until(lambda: task.due_ns > due + 119 * S, "the next step is noticed")


@needs_linux
def test_it_looks_only_when_it_is_told(make, timer, often):
    """Nothing is looked at every RECHECK_S where the kernel tells."""
    scheduler = make(0)
    scheduler.submit_at(soon(3600), print)
    wait_until(lambda: timer.armed, "the timer is armed")
    looks = []
    scheduler._crew.wall_moved = lambda: looks.append(1)
    time.sleep(0.2)  # ten times as long as it would take
    assert looks == []
    timer.clock_was_set()
    wait_until(lambda: looks, "a look")


@needs_linux
def test_it_makes_no_wake_ups(make):
    """With the kernel's own timer: the thread's context switches are counted."""
    scheduler = make(0)
    scheduler.submit_at(soon(3600), print)
    thread = the_thread()
    wait_until(lambda: thread.native_id, "the thread")

    def at_rest() -> bool:
        before = switches(thread)
        time.sleep(0.05)
        return switches(thread) == before

    wait_until(at_rest, "the thread waits")
    before = switches(thread)
    time.sleep(1)
    assert switches(thread) == before


def switches(thread: threading.Thread) -> int:
    with open(f"/proc/self/task/{thread.native_id}/status") as status:
        for line in status:
            if line.startswith("voluntary_ctxt_switches"):
                return int(line.split()[1])
    raise AssertionError("no such line")


# -- where the kernel does not tell ----------------------------------------------------------------


@needs_linux
@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_a_timer_that_the_kernel_refuses_is_replaced_by_looking(make, timer, shift, often, refusal):
    timer.refuse = refusal
    check_that_looking_finds_it(make, shift)
    with pytest.raises(OSError):  # the descriptor is closed
        os.fstat(timer.opened[0])


def test_without_a_timer_it_looks(make, shift, often, monkeypatch):
    monkeypatch.setattr(_wall_watch, "open_timer", lambda: None)
    check_that_looking_finds_it(make, shift)


def test_without_descriptors_it_looks(make, shift, often, monkeypatch):
    """As on other platforms."""
    monkeypatch.setattr(_wall_watch, "new_bell", _wall_watch.PlainBell)
    check_that_looking_finds_it(make, shift)


def test_where_no_descriptor_can_be_had_it_looks(make, shift, often, monkeypatch):
    def none_left(*_args, **_kwargs):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "eventfd", none_left, raising=False)
    check_that_looking_finds_it(make, shift)


def check_that_looking_finds_it(make, shift) -> None:
    scheduler = make(0)
    looks = []
    look = scheduler._crew.wall_moved
    scheduler._crew.wall_moved = lambda: (looks.append(1), look())
    task = scheduler.submit_at(soon(3600), print)
    due = task.due_ns
    wait_until(lambda: looks, "the first look")
    shift.append(-600 * S)
    wait_until(lambda: task.due_ns > due, "the step is noticed")
    assert abs(task.due_ns - due - 600 * S) < 50 * MS
    assert task.cancel()
    wait_until(none_left, "the end of the watch")


def test_a_users_wall_clock_is_looked_at(make, clock, often):
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(3600), print)
    fake.value -= HOUR
    wait_until(lambda: task.due_ns == 2 * HOUR, "the step is noticed")
    assert task.cancel()
    wait_until(none_left, "the end of the watch")
    reads = fake.reads
    time.sleep(0.1)
    assert fake.reads == reads


def test_it_begins_to_look_when_the_first_such_clock_comes(make, clock, timer, often):
    make(0).submit_at(soon(3600), print)
    wait_until(lambda: timer.armed, "the timer is armed")
    fake = FakeWall()
    task = make(0, clock=clock, wall_clock=fake).submit_at(later(3600), print)
    fake.value -= HOUR
    wait_until(lambda: task.due_ns == 2 * HOUR, "the step is noticed")


def test_a_rescheduled_or_started_task_is_not_looked_after(make, clock, often, new_gate):
    fake, gate = FakeWall(), new_gate()
    scheduler = make(1, clock=clock, wall_clock=fake)
    scheduler.submit_at(later(60), gate)
    fake.value += 60 * S
    clock.advance(60)
    gate.wait_entered()
    wait_until(none_left, "a running task needs no watch")
    task = scheduler.submit_at(later(3600), print)
    assert _wall_watch._watch.threads
    assert task.reschedule(100)
    wait_until(none_left, "a rescheduled task needs no watch")
    assert kept(scheduler) == []


def test_the_default_bound_is_what_the_docs_say():
    assert _wall_watch.RECHECK_S == 30
    assert _wall.TOLERANCE_NS == MS


# -- trouble ---------------------------------------------------------------------------------------


def test_a_scheduler_that_fails_is_logged_and_the_others_are_served(
    make, clock, often, caplog, monkeypatch
):
    bad, good = (make(0, clock=clock, wall_clock=FakeWall()) for _ in range(2))

    def fail():
        raise SystemExit("wall")

    monkeypatch.setattr(bad._crew, "wall_moved", fail)
    bad.submit_at(later(3600), print)
    task = good.submit_at(later(3600), print)
    good._engine.config.face.wall._wall_clock.value -= HOUR
    wait_until(lambda: task.due_ns == 2 * HOUR, "the step is noticed")
    assert any("wall clock failed" in record.getMessage() for record in caplog.records)


def test_an_exception_thrown_into_it_does_not_end_it(make, timer, shift, caplog):
    scheduler = make(0)
    task = scheduler.submit_at(soon(3600), print)
    due = task.due_ns
    wait_until(lambda: timer.armed, "the timer is armed")
    thread = the_thread()
    target = ctypes.c_ulong(thread.ident)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(SystemExit)) == 1
    _wall_watch._watch.threads["thread"].bell.ring()
    wait_until(lambda: caplog.records, "it says so")
    shift.append(-60 * S)
    timer.clock_was_set()
    wait_until(lambda: task.due_ns > due + 59 * S, "the step is noticed")
    assert threads() == [thread]


# -- the kernel's own timer ------------------------------------------------------------------------


@needs_linux
def test_this_kernel_has_the_timer():
    fd = _wall_watch.open_timer()
    assert fd is not None
    try:
        _wall_watch.arm(fd)
        _wall_watch.take(fd)
        _wall_watch.arm(fd)
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


@needs_linux
def test_both_ways_to_the_timer_agree(monkeypatch):
    """The C library's functions, used before 3.13, on every version."""
    monkeypatch.setattr(sys, "version_info", (3, 12))
    fd = _wall_watch.open_timer()
    assert fd is not None
    try:
        _wall_watch.arm(fd)
        with pytest.raises(BlockingIOError):
            os.read(fd, 8)
        with open(f"/proc/self/fdinfo/{fd}") as info:
            fields = dict(line.split(":", 1) for line in info if ":" in line)
        assert int(fields["clockid"]) == time.CLOCK_REALTIME
        assert int(fields["settime flags"], 8) == 3  # absolute, cancelled on set
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="timerfd_settime"):
        _wall_watch.arm(0)


def test_a_manual_wall_clock_moves_from_any_thread(make, clock):
    wall = ManualWallClock(START)
    scheduler = make(0, clock=clock, wall_clock=wall)
    task = scheduler.submit_at(later(100_000), print)
    movers = [
        threading.Thread(target=lambda: [wall.step(s) for s in (1, -2, 3, -1) * 50])
        for _ in range(4)
    ]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join(60)
    assert wall.now() == later(4 * 50)
    assert task.due_ns == (100_000 - 200) * S
