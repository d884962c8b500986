"""C27, C28, C29: waits inside bodies, finalizers that re-enter, the GIL against the monitor."""

import threading
import time
from concurrent.futures import ALL_COMPLETED, as_completed, wait

import pytest
from contract.support import SOON

from duepool import CancelledError, TaskState, WouldDeadlock, current_task

from . import children, size

pytestmark = children.LIMIT

C28_SUBMITS = size(10_000, 200_000)
C29_SECONDS = size(3, 30)


def one(value=1):
    return value


WAYS = {
    "result": lambda task: task.result(),
    "exception": lambda task: task.exception(),
    "wait": lambda task: wait([task]),
    "as_completed": lambda task: list(as_completed([task])),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def attempt(way, task):
    """Wait for ``task`` in a body: whether it was refused, the seconds it took, the task."""
    start = time.monotonic()
    try:
        way(task)
    except WouldDeadlock:
        return True, time.monotonic() - start, task
    return False, time.monotonic() - start, task


def test_c27_one_worker_that_waits_for_its_own_scheduler_is_told(make, way):
    scheduler = make(1)
    body = scheduler.submit(lambda: attempt(way, scheduler.submit(one, 7)))
    refused, seconds, inner = body.result(SOON)
    assert refused
    assert seconds < 1
    assert inner.result(SOON) == 7
    assert inner.state == TaskState.SUCCEEDED


def test_c27_uncaught_it_is_the_outcome_of_the_body_and_the_worker_lives_on(make, way):
    scheduler = make(1)
    inner = []

    def body():
        inner.append(scheduler.submit(one, 7))
        way(inner[0])

    assert isinstance(scheduler.submit(body).exception(SOON), WouldDeadlock)
    assert inner[0].result(SOON) == 7


def test_c27_of_two_workers_one_is_told_and_the_other_goes_on(make, way):
    scheduler = make(2)
    both = threading.Barrier(2)

    def body():
        both.wait(SOON)  # else the other worker might run the first inner task
        inner = scheduler.submit(one, 7)
        both.wait(SOON)
        return attempt(way, inner)

    outcomes = [task.result(SOON) for task in [scheduler.submit(body) for _ in range(2)]]
    assert sorted(refused for refused, _, _ in outcomes) == [False, True]
    assert all(seconds < 1 for refused, seconds, _ in outcomes if refused)
    assert [inner.result(SOON) for _, _, inner in outcomes] == [7, 7]


@pytest.mark.parametrize("workers", [3, 5])
def test_c27_of_many_workers_only_the_last_one_is_told(make, way, workers):
    scheduler = make(workers)
    all_there = threading.Barrier(workers)

    def body():
        all_there.wait(SOON)
        inner = scheduler.submit(one, 7)
        all_there.wait(SOON)
        return attempt(way, inner)

    outcomes = [task.result(SOON) for task in [scheduler.submit(body) for _ in range(workers)]]
    assert sum(refused for refused, _, _ in outcomes) == 1
    assert all(inner.result(SOON) == 7 for _, _, inner in outcomes)


def test_c27_a_wait_for_several_of_its_own_tasks_is_told(make):
    scheduler = make(1)

    def body():
        inner = scheduler.submit_many([one] * 3)
        with pytest.raises(WouldDeadlock):
            wait(inner, return_when=ALL_COMPLETED)
        return inner

    for task in scheduler.submit(body).result(SOON):
        assert task.result(SOON) == 1


def test_c27_a_delayed_task_of_the_same_scheduler_counts_as_well(make):
    scheduler = make(1)
    body = scheduler.submit(lambda: attempt(WAYS["result"], scheduler.submit_after(0.01, one)))
    refused, seconds, inner = body.result(SOON)
    assert refused
    assert seconds < 1
    assert inner.result(SOON) == 1


def test_c27_a_body_that_waits_for_itself_is_told_whoever_else_is_free(make, way):
    scheduler = make(4)
    assert scheduler.submit(lambda: attempt(way, current_task())).result(SOON)[0]


def test_c27_a_callback_on_the_worker_is_told(make, way, gate):
    scheduler = make(1)
    told = []
    first = scheduler.submit(gate)
    done = threading.Event()

    def callback(_task):
        told.append(attempt(way, scheduler.submit(one, 7)))
        done.set()

    first.add_done_callback(callback)
    gate.release.set()
    assert done.wait(SOON)
    refused, _, inner = told[0]
    assert refused
    assert inner.result(SOON) == 7


def test_c27_a_wait_with_a_time_out_is_never_refused(make):
    scheduler = make(1)

    def body():
        inner = scheduler.submit(one, 7)
        with pytest.raises(TimeoutError):
            inner.result(0.05)
        not_done = wait([inner], timeout=0.05).not_done
        assert not_done == {inner}
        return inner

    assert scheduler.submit(body).result(SOON).result(SOON) == 7


def test_c27_a_wait_for_another_scheduler_is_no_deadlock(make, way):
    first, second = make(1), make(1)
    refused, _, inner = first.submit(lambda: attempt(way, second.submit(one, 7))).result(SOON)
    assert not refused
    assert inner.result(0) == 7


def test_c27_one_blocked_worker_leaves_the_others_free_again_and_again(make):
    scheduler = make(2)

    def nested():
        return scheduler.submit(one, 7).result()

    for _ in range(200):
        assert scheduler.submit(nested).result(SOON) == 7


def test_c27_a_cancel_ends_the_wait_of_the_other_body(make):
    scheduler = make(2)
    inner = scheduler.submit_after(3600, one)
    waits = threading.Event()

    def body():
        waits.set()
        with pytest.raises(CancelledError):
            inner.result()
        return "woken"

    task = scheduler.submit(body)
    assert waits.wait(SOON)
    assert inner.cancel()
    assert task.result(SOON) == "woken"
    # Nothing stays counted: one more may wait now.
    assert scheduler.submit(lambda: scheduler.submit(one).result()).result(SOON) == 1


def test_c28_finalizers_that_submit_while_gc_runs_at_every_allocation(engine):
    """The reference engine may refuse a re-entry with ``RuntimeError``; it never waits."""
    ended = children.run(
        """
        import gc
        from collections import deque

        rounds = int(sys.argv[1])
        executed, accepted, refused = deque(), deque(), deque()
        scheduler = Scheduler(2, capacity=None)

        class Cyclic:
            def __init__(self):
                self.me = self
            def __del__(self):
                try:
                    scheduler.submit(executed.append, None)
                except SchedulerClosed:
                    pass
                except RuntimeError:
                    refused.append(None)
                else:
                    accepted.append(None)

        start = time.monotonic()
        gc.set_threshold(1)
        for _ in range(rounds):
            Cyclic()
            scheduler.submit(executed.append, None)
            accepted.append(None)
        gc.set_threshold(700)
        gc.collect()
        report = scheduler.shutdown()
        assert report.complete, report
        seconds = time.monotonic() - start
        assert len(accepted) == len(executed) == scheduler.stats().succeeded
        assert len(accepted) + len(refused) == 2 * rounds, (len(accepted), len(refused))
        print(seconds, len(refused))
        """,
        engine,
        C28_SUBMITS,
    ).check()
    seconds, refused = ended.out.split()
    assert float(seconds) < 60
    if engine == "cython":
        assert int(refused) == 0


def test_c28_weakref_callbacks_and_finalizers_that_do_everything_else(engine):
    children.run(
        """
        import gc, weakref
        from collections import deque

        rounds = int(sys.argv[1])
        scheduler = Scheduler(2, capacity=None)
        calls, keep = deque(), []
        far = scheduler.submit_after(3600, print)

        def enter(_reference=None):
            try:
                scheduler.submit_after(3600, print).cancel()
                far.reschedule(3600)
                scheduler.stats(), scheduler.next_due_ns, repr(far), scheduler.get(far.id)
            except (RuntimeError, UnknownTask):  # the reference's lock is held; far has ended
                pass
            calls.append(None)

        class Cyclic:
            def __init__(self):
                self.me = self
                keep.append(weakref.ref(self, enter))
            def __del__(self):
                enter()

        gc.set_threshold(1)
        for i in range(rounds):
            Cyclic()
            task = scheduler.submit_after(0.0001, calls.append, None)
            if i % 3 == 0:
                task.cancel()
            if i % 100 == 0:
                del keep[:]
                gc.collect()
        gc.set_threshold(700)
        gc.collect()
        del keep[:]
        far.cancel()
        scheduler.shutdown()
        stats = scheduler.stats()
        assert stats.queued == stats.running == 0, stats
        assert stats.admitted == stats.succeeded + stats.cancelled, stats
        assert len(calls) >= rounds
        """,
        engine,
        C28_SUBMITS // 5,
    ).check()


def test_c29_the_gil_and_the_monitor_never_wait_for_each_other(engine):
    ended = children.run(
        """
        import random
        from concurrent.futures import CancelledError

        seconds = float(sys.argv[1])
        sys.setswitchinterval(1e-6)
        scheduler = Scheduler(3, capacity=None)
        end = time.monotonic() + seconds
        errors = []

        def mix(seed):
            chance = random.Random(seed)
            try:
                while time.monotonic() < end:
                    task = scheduler.submit(int)
                    later = scheduler.submit_after(chance.random() * 0.002, int)
                    many = scheduler.submit_many([int] * 3, 0.001)
                    step = chance.randrange(6)
                    if step == 0:
                        later.cancel(), scheduler.cancel_many(many)
                    elif step == 1:
                        scheduler.stats(), scheduler.next_due_ns
                    elif step == 2:
                        scheduler.tasks(), scheduler.view(task.id), repr(scheduler)
                    elif step == 3:
                        assert task.result() == 0
                    elif step == 4:
                        later.reschedule(0.001), later.exception()
                    else:
                        try:
                            task.cancel(), task.result()
                        except CancelledError:
                            pass
            except BaseException as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=mix, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            stats = scheduler.stats()
            print(time.monotonic(), stats.succeeded + stats.cancelled, flush=True)
            time.sleep(0.1)
        for thread in threads:
            thread.join()
        assert scheduler.shutdown().complete
        assert not errors, errors
        """,
        engine,
        C29_SECONDS,
    ).check()
    samples = [(float(at), int(done)) for at, done in map(str.split, ended.lines)]
    assert samples[-1][0] - samples[0][0] > C29_SECONDS - 2.5
    for i, (at, done) in enumerate(samples[:-1]):
        moved = next((later for later, count in samples[i + 1 :] if count > done), None)
        if moved is None:
            assert samples[-1][0] - at < 2, f"no completion after {samples[i:]}"
        else:
            assert moved - at < 2, f"no completion for {moved - at:.2f} s"
