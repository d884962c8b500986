"""C31, C32, C33: shutdown with delayed work, against submissions, and start/stop cycles.

C33 is about jobs; here five tasks of 1 ms that submit their own successors stand for them.
"""

import random
import threading
import time

import pytest
from contract.support import CANCELLED, QUEUED, SOON, nothing, wait_until

from duepool import CancelledError, SchedulerClosed, TaskState

from . import children, size

pytestmark = children.LIMIT

C32_SUBMITS = size(400, 10_000)
C32_REPEATS = size(2, 50)
C33_CYCLES = size(30, 1_000)
THREADS = 8


def test_c31_a_shutdown_that_cancels_delayed_work_does_not_wait_for_it(make):
    scheduler = make(2)
    ran = []
    task = scheduler.submit_after(3600, ran.append, 1)
    scheduler.shutdown(wait=False, delayed="cancel")
    start = time.monotonic()
    assert scheduler.await_termination(5) is True
    assert time.monotonic() - start < 1
    assert task.state == CANCELLED
    assert task.cancel_reason == "shutdown"
    assert ran == []


@pytest.mark.parametrize("how", ["task.cancel", "scheduler.cancel", "id", "cancel_many"])
def test_c31_the_cancel_of_the_last_delayed_task_ends_the_scheduler(make, how):
    scheduler = make(2)
    task = scheduler.submit_after(3600, nothing)
    scheduler.shutdown(wait=False, delayed="run")
    cancel = {
        "task.cancel": task.cancel,
        "scheduler.cancel": lambda: scheduler.cancel(task),
        "id": lambda: scheduler.cancel(task.id),
        "cancel_many": lambda: scheduler.cancel_many([task]),
    }[how]
    at = []

    def from_another_thread():
        time.sleep(0.05)  # main waits by then, or will: both are right
        at.append(time.monotonic())
        assert cancel()

    thread = threading.Thread(target=from_another_thread)
    thread.start()
    assert scheduler.await_termination(SOON) is True
    ended = time.monotonic()
    thread.join(SOON)
    assert ended - at[0] < 1
    assert task.state == CANCELLED


@pytest.mark.parametrize("limit", [None, 60])
def test_c31_a_waiting_shutdown_ends_with_that_cancel_too(make, limit):
    scheduler = make(2)
    task = scheduler.submit_after(3600, nothing)
    reports, ended = [], []

    def close():
        reports.append(scheduler.shutdown(wait=True, timeout=limit))
        ended.append(time.monotonic())

    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    wait_until(lambda: "closed" in repr(scheduler), "the shutdown to begin")
    assert task.state == QUEUED
    at = time.monotonic()
    assert task.cancel()
    thread.join(SOON)
    assert ended, "shutdown() did not return"
    assert ended[0] - at < 1
    assert reports[0].complete
    assert reports[0].cancelled == 1


def test_c31_a_second_shutdown_cancels_what_the_first_one_waits_for(make):
    scheduler = make(1)
    task = scheduler.submit_after(3600, nothing)
    thread = threading.Thread(target=scheduler.shutdown, daemon=True)
    thread.start()
    wait_until(lambda: "closed" in repr(scheduler), "the shutdown to begin")
    scheduler.shutdown(wait=False, delayed="cancel")
    thread.join(SOON)
    assert not thread.is_alive()
    assert task.state == CANCELLED


def test_c31_what_is_due_runs_and_only_what_is_later_is_cancelled(make, clock, gate):
    scheduler = make(1, clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    due, later = scheduler.submit(nothing, 1), scheduler.submit_after(1e-9, nothing)
    scheduler.shutdown(wait=False, delayed="cancel")
    assert (due.state, later.state) == (QUEUED, CANCELLED)
    gate.release.set()
    assert scheduler.await_termination(SOON)
    assert due.state == TaskState.SUCCEEDED


def test_c31_a_clock_that_stands_still_holds_up_nobody(make, clock):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(1, nothing)
    scheduler.shutdown(wait=False)
    assert scheduler.await_termination(0.1) is False
    clock.advance(1)
    assert scheduler.await_termination(SOON) is True
    assert task.result(0) is None


ENDS = {
    "run": lambda scheduler: scheduler.shutdown(wait=False),
    "cancel delayed": lambda scheduler: scheduler.shutdown(wait=False, delayed="cancel"),
    "cancel all": lambda scheduler: scheduler.shutdown(wait=False, cancel_futures=True),
    "now": lambda scheduler: scheduler.shutdown_now(),
}


@pytest.mark.parametrize("end", ENDS)
def test_c32_every_accepted_task_ends_and_every_other_is_refused(make, end):
    chance = random.Random(f"c32 {end}")
    for _ in range(C32_REPEATS):
        scheduler = make(4, capacity=None)
        accepted = [[] for _ in range(THREADS)]
        rejected = [0] * THREADS
        start = threading.Barrier(THREADS + 1)

        def submit(index, scheduler=scheduler, accepted=accepted, rejected=rejected, start=start):
            start.wait(SOON)
            for i in range(C32_SUBMITS):
                try:
                    task = submit_one(scheduler, i)
                except SchedulerClosed:
                    rejected[index] += 1
                else:
                    accepted[index].append(task)

        threads = [
            threading.Thread(target=submit, args=(index,), daemon=True) for index in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        moment = chance.randrange(THREADS * C32_SUBMITS)
        start.wait(SOON)
        wait_until(lambda s=scheduler, m=moment: s.stats().admitted >= m, "the moment")
        ENDS[end](scheduler)
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()
        assert scheduler.await_termination(SOON)
        tasks = [task for some in accepted for task in some]
        stats = scheduler.stats()
        assert len(tasks) + sum(rejected) == THREADS * C32_SUBMITS
        assert (stats.admitted, stats.rejected) == (len(tasks), sum(rejected))
        assert (stats.queued, stats.running, stats.cancel_requested, stats.failed) == (0, 0, 0, 0)
        assert all(task.done() for task in tasks)
        assert sum(outcome_of(task) for task in tasks) == stats.succeeded
        assert sorted(task.id for task in tasks) == list(range(1, len(tasks) + 1))


def submit_one(scheduler, i):
    if i % 3:
        return scheduler.submit(int)
    return scheduler.submit_after(0.002, int)


def outcome_of(task):
    """1 for a task that succeeded, 0 for a cancelled one; it has ended, so nothing is waited for"""
    try:
        return 1 if task.result(0) == 0 else -1
    except CancelledError:
        return 0


def test_c32_many_at_once_are_admitted_all_or_none(make):
    for repeat in range(C32_REPEATS * 3):
        scheduler = make(2, capacity=None)
        groups, refused = [], []
        start = threading.Barrier(5)

        def submit(scheduler=scheduler, groups=groups, refused=refused, start=start):
            start.wait(SOON)
            for _ in range(C32_SUBMITS // 10):
                try:
                    groups.append(scheduler.submit_many([int] * 10))
                except SchedulerClosed:
                    refused.append(10)

        threads = [threading.Thread(target=submit, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        start.wait(SOON)
        wait_until(lambda s=scheduler, r=repeat: s.stats().admitted >= 50 * r, "the moment")
        scheduler.shutdown(wait=False)
        for thread in threads:
            thread.join(SOON)
        assert scheduler.await_termination(SOON)
        assert all(task.result(0) == 0 for group in groups for task in group)
        stats = scheduler.stats()
        assert stats.admitted == stats.succeeded == 10 * len(groups)
        assert stats.rejected == sum(refused)


@pytest.mark.parametrize(
    "end", ["shutdown()", 'shutdown(delayed="cancel")', "shutdown(cancel_futures=True)"]
)
def test_c33_cycles_of_start_and_shutdown_are_silent_and_nothing_starts_afterwards(engine, end):
    children.run(
        f"""
        log = Log()
        logging.getLogger().addHandler(log)
        logging.getLogger().setLevel(logging.DEBUG)
        late = []
        runs = 0

        def cycle(pause):
            over = False
            def body():
                global runs
                runs += 1
                if over:
                    late.append(time.monotonic())
                try:
                    scheduler.submit_after(0.001, body)
                except SchedulerClosed:
                    pass
            scheduler = Scheduler(2)
            for _ in range(5):
                scheduler.submit_after(0.001, body)
            if pause:
                time.sleep(pause)
            scheduler.{end}
            over = True

        for i in range(int(sys.argv[1])):
            cycle(i % 7 * 0.0005)
        assert not late, late
        assert not log.lines, log.lines
        print(runs)
        """,
        engine,
        C33_CYCLES,
    ).check()
