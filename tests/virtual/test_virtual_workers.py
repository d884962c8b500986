"""``duepool.testing.VirtualWorkers``: an executor whose bodies take virtual time."""

import concurrent.futures
import gc
import math
import threading
import weakref
from datetime import timedelta

import pytest

import duepool
from duepool.testing import Takes, VirtualWorkers

from . import S
from .support import Aside, Diary, nothing


@pytest.fixture
def workers(clock):
    return VirtualWorkers(2, clock)


def takes(seconds):
    """A body that takes so long."""
    return seconds


def note_end(future, clock):
    """Have the instant at which ``future`` is done written down; a list of at most one."""
    seen = []
    future.add_done_callback(lambda _: seen.append(clock.now_ns()))
    return seen


def test_it_is_an_executor(workers, clock):
    assert isinstance(workers, concurrent.futures.Executor)
    future = workers.submit(takes, 2)
    assert isinstance(future, concurrent.futures.Future)
    assert (future.running(), future.done()) == (True, False)
    clock.advance(2)
    assert (future.result(0), concurrent.futures.wait([future]).done) == (2, {future})


@pytest.mark.parametrize(
    ("duration", "end_ns"),
    [
        (3, 3 * S),
        (0.1, S // 10),
        (1e-9, 1),
        (timedelta(microseconds=5), 5_000),
        (Takes(2.5, "x"), 2.5 * S),
        (Takes(timedelta(days=100)), 100 * 86_400 * S),
    ],
)
def test_a_future_completes_at_its_instant_to_the_nanosecond(workers, clock, duration, end_ns):
    future = workers.submit(takes, duration)
    end = note_end(future, clock)
    assert workers.next_ns() == end_ns
    clock.advance_to_ns(int(end_ns) - 1)
    assert not future.done()
    clock.advance_to_ns(int(end_ns))
    assert end == [end_ns]
    expected = duration.result if isinstance(duration, Takes) else duration
    assert future.result(0) is expected


def test_a_body_that_takes_no_time_has_ended_when_it_was_submitted(workers):
    assert workers.submit(takes, 0).result(0) == 0
    assert workers.submit(takes, Takes(0.0, "at once")).result(0) == "at once"
    assert workers.busy == 0


def test_no_more_than_its_workers_run_at_once_first_come_first_served(workers, clock):
    diary = Diary(clock)

    def body(name, seconds):
        diary(name)
        return seconds

    futures = [
        workers.submit(body, name, s) for name, s in zip("abcde", (3, 1, 4, 1, 5), strict=True)
    ]
    ends = [note_end(future, clock) for future in futures]
    assert (workers.busy, workers.queued) == (2, 3)
    for _ in range(10):
        clock.advance(1)
    assert diary.entries == [(0, "a"), (0, "b"), (1, "c"), (3, "d"), (4, "e")]
    assert ends == [[3 * S], [1 * S], [5 * S], [4 * S], [9 * S]]
    assert (workers.busy, workers.queued, workers.next_ns()) == (0, 0, None)


def test_a_generator_yields_durations_and_returns_its_result(workers, clock):
    diary = Diary(clock)

    def body():
        diary("begins")
        yield 1.5
        diary("goes on")
        yield timedelta(seconds=1)
        yield 0
        diary("ends")
        return "result"

    future = workers.submit(body)
    for _ in range(10):
        clock.advance(0.5)
    assert diary.entries == [(0, "begins"), (1.5, "goes on"), (2.5, "ends")]
    assert future.result(0) == "result"


def test_a_generator_without_a_yield_ends_at_once(workers):
    def body():
        return "at once"
        yield

    assert workers.submit(body).result(0) == "at once"


def test_what_a_body_raises_ends_it_at_once_and_frees_its_worker(workers, clock):
    def fail():
        raise ValueError("at once")

    def fail_later():
        yield 2
        raise ValueError("later")

    first, later = workers.submit(fail), workers.submit(fail_later)
    assert str(first.exception(0)) == "at once"
    clock.advance(2)
    assert str(later.exception(0)) == "later"
    assert workers.busy == 0


@pytest.mark.parametrize("step", ["returned", "in Takes", "yielded"])
@pytest.mark.parametrize(
    ("duration", "error"),
    [
        (None, TypeError),
        ("5", TypeError),
        (True, TypeError),
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (2**63 / 1e9, OverflowError),
    ],
)
def test_a_duration_that_is_none_is_the_bodys_error(workers, clock, step, duration, error):
    def generator():
        yield duration

    clock.advance(1)
    body = {"returned": lambda: duration, "in Takes": lambda: Takes(duration), "yielded": generator}
    future = workers.submit(body[step])
    with pytest.raises(error, match="duration of a body"):
        future.result(0)
    assert workers.busy == 0


def test_the_error_says_what_a_body_is_to_return(workers):
    with pytest.raises(TypeError, match=r"Takes\(seconds, result\), or is a generator"):
        workers.submit(nothing).result(0)


def test_a_queued_future_can_be_cancelled_and_a_running_one_cannot(workers, clock):
    ran = []
    futures = [workers.submit(lambda i=i: ran.append(i) or 2) for i in range(4)]
    assert [future.cancel() for future in futures] == [False, False, True, True]
    assert workers.queued == 0
    last = workers.submit(takes, 1)
    clock.advance(2)
    clock.advance(1)
    assert ran == [0, 1]
    assert last.result(0) == 1
    assert futures[2].cancelled()


def test_cancelling_releases_what_is_queued(workers):
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    workers.submit(takes, 1), workers.submit(takes, 1)
    future = workers.submit(nothing, thing)
    del thing
    assert gone() is not None
    assert future.cancel()
    assert gone() is None


def test_a_running_generator_is_asked_to_stop(workers, clock):
    diary = Diary(clock)

    def body():
        try:
            yield 10
        except duepool.CancelRequested:
            diary("asked")
            yield 2  # cleaning up takes its time
            diary("cleaned up")
            raise

    future = workers.submit(body)
    clock.advance(3)
    assert future.cancel() is False
    assert workers.next_ns() == 5 * S
    clock.advance(1)
    clock.advance(1)
    assert diary.entries == [(3, "asked"), (5, "cleaned up")]
    assert isinstance(future.exception(0), duepool.CancelRequested)
    assert (workers.busy, workers.next_ns()) == (0, None)


def test_ends_that_were_cancelled_do_not_pile_up(clock):
    workers = VirtualWorkers(1, clock)

    def body():
        yield 1000

    long = VirtualWorkers(3, clock)
    kept = long.submit(takes, 2000)
    for _ in range(5000):
        workers.submit(body).cancel()
        long.submit(body).cancel()
        assert len(workers._ends) < 200
        assert len(long._ends) < 200
    assert (workers.busy, workers.next_ns(), long.next_ns()) == (0, None, 2000 * S)
    clock.advance(2000)
    assert kept.done()


def test_a_plain_advance_completes_in_order(workers, clock):
    ended = []
    for name, seconds in (("a", 3), ("b", 1), ("c", 1), ("d", 0)):
        workers.submit(takes, seconds).add_done_callback(lambda _, n=name: ended.append(n))
    clock.advance(10)
    # The two that were queued start, and their time runs, from the instant the clock was moved to.
    assert ended == ["b", "a", "d"]
    clock.advance(1)
    assert ended == ["b", "a", "d", "c"]


def test_equal_ends_are_first_come_first_served_and_come_before_starts(clock):
    workers = VirtualWorkers(3, clock)
    order = []

    def body(name, seconds):
        order.append(f"{name} begins")
        return seconds

    for name in "abcdef":
        future = workers.submit(body, name, 2)
        future.add_done_callback(lambda _, n=name: order.append(f"{n} ends"))
    clock.advance(2)
    assert order == [
        *("a begins", "b begins", "c begins", "a ends", "b ends", "c ends"),
        *("d begins", "e begins", "f begins"),
    ]


def test_callbacks_may_submit(workers, clock):
    diary = Diary(clock)

    def again(left):
        diary(left)
        if left:
            workers.submit(takes, 1).add_done_callback(lambda _: again(left - 1))

    again(3)
    for _ in range(5):
        clock.advance(1)
    assert diary.entries == [(0, 3), (1, 2), (2, 1), (3, 0)]


def test_a_chain_of_bodies_without_length_does_not_nest(workers):
    ended = []

    def again(left):
        ended.append(left)
        if left:
            workers.submit(takes, 0).add_done_callback(lambda _: again(left - 1))

    def body():
        again(3000)
        return 0

    workers.submit(body)
    assert len(ended) == 3001


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_stored_and_raised_again(workers, clock, kind):
    def stop():
        raise kind("now")

    def stop_later():
        yield 2
        raise kind("later")

    other = workers.submit(takes, 2)
    later = workers.submit(stop_later)
    waits = workers.submit(takes, 1)
    with pytest.raises(kind, match="later"):
        clock.advance(2)
    assert isinstance(later.exception(0), kind)
    assert (other.done(), waits.running()) == (True, True)
    with pytest.raises(kind, match="now"):
        workers.submit(stop)
    assert workers.busy == 1


def test_shutting_down_refuses_and_never_waits(clock):
    with VirtualWorkers(1, clock) as workers:
        running, queued = workers.submit(takes, 2), workers.submit(takes, 3)
    with pytest.raises(RuntimeError, match="after shutdown"):
        workers.submit(takes, 1)
    clock.advance(2)
    clock.advance(3)
    assert (running.result(0), queued.result(0)) == (2, 3)


def test_shutting_down_cancels_what_is_queued_if_asked(clock):
    workers = VirtualWorkers(1, clock)
    running, queued = workers.submit(takes, 2), workers.submit(takes, 3)
    workers.shutdown(cancel_futures=True)
    assert (running.running(), queued.cancelled()) == (True, True)
    clock.advance(2)
    assert running.result(0) == 2


def test_map_and_as_completed(make, workers, clock):
    results = workers.map(takes, [3, 1, 2])
    make(0, clock=clock).run_until_idle()
    assert list(results) == [3, 1, 2]


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_bad_numbers_of_workers(clock, count, error):
    with pytest.raises(error, match="workers"):
        VirtualWorkers(count, clock)


@pytest.mark.parametrize("clock", [None, duepool.MonotonicClock(), 0])
def test_bad_clocks(clock):
    with pytest.raises(TypeError, match="ManualClock"):
        VirtualWorkers(1, clock)


def test_a_body_must_be_callable(workers):
    with pytest.raises(TypeError, match="callable"):
        workers.submit(5)


def test_they_live_while_somebody_waits_for_a_future(clock):
    workers = VirtualWorkers(1, clock)
    future = workers.submit(takes, 1)
    gone = weakref.ref(workers)
    del workers
    gc.collect()
    clock.advance(1)
    assert future.result(0) == 1
    del future
    gc.collect()
    assert gone() is None


def test_its_repr_says_what_goes_on(workers):
    for _ in range(3):
        workers.submit(takes, 1)
    assert repr(workers) == "<VirtualWorkers 2 of 2 busy, 1 queued>"
    assert repr(Takes(1, "x")) == "Takes(1, 'x')"


def test_submitting_from_many_threads(clock):
    workers = VirtualWorkers(3, clock)
    running, most = [0], [0]

    def body():
        running[0] += 1
        most[0] = max(most[0], running[0])
        yield 1
        running[0] -= 1
        return threading.get_ident()

    def submit_many():
        return [workers.submit(body) for _ in range(300)]

    asides = [Aside(submit_many) for _ in range(4)]
    futures = [future for aside in asides for future in aside.result()]
    for _ in range(400):
        clock.advance(1)
    assert all(future.done() for future in futures)
    assert {future.result(0) for future in futures[-1:]} == {threading.get_ident()}
    assert (most[0], workers.busy, workers.queued) == (3, 0, 0)
