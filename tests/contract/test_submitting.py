"""§3: each way to submit, names, the capacity, ids, ``submit_many`` and ``map``."""

import inspect
import itertools
import re
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta

import pytest

import duepool
from duepool import QueueFull, RejectedError, Scheduler, SchedulerClosed

from .support import (
    CANCELLED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    counters,
    nothing,
    picture,
    room,
    wait_until,
)

S = 1_000_000_000


def echo(*args, **kwargs):
    return args, kwargs


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


def each_way(face):
    """Every submit method of a face, as a function of (fn, *args, **kwargs)."""
    now = datetime.now(UTC)
    return {
        "submit": face.submit,
        "submit_after": lambda *a, **k: face.submit_after(0, *a, **k),
        "submit_at": lambda *a, **k: face.submit_at(now, *a, **k),
        "submit_at_ns": lambda *a, **k: face.submit_at_ns(0, *a, **k),
    }


WAYS = ["submit", "submit_after", "submit_at", "submit_at_ns"]


def test_a_scheduler_is_an_executor_and_a_task_a_future(manual):
    assert isinstance(manual, Executor)
    assert isinstance(manual, Scheduler)
    task = manual.submit(nothing)
    assert isinstance(task, Future)
    assert isinstance(task, duepool.Task)


def test_the_defaults_of_the_constructor_are_the_documented_ones():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(Scheduler.__init__).parameters.items()
        if name != "self"
    }
    assert defaults == {
        "max_workers": None,
        "thread_name_prefix": "",
        "initializer": None,
        "initargs": (),
        "capacity": 1_048_576,
        "clock": None,
        "engine": None,
        "history": 1024,
        "past_due": "run",
        "context": "copy",
        "exit_grace": 5.0,
        "executor": None,
        "max_in_flight": None,
        "overload": "reject",
        "quotas": None,
        "wrap": (),
        "late_after": None,
        "on_event": None,
        "wall_clock": None,
        "thread_factory": None,
    }
    assert list(defaults)[:4] == ["max_workers", "thread_name_prefix", "initializer", "initargs"]


def test_the_engine_is_the_one_asked_for(make, engine):
    scheduler = make(0)
    assert engine == type(scheduler)._engine_module.NAME


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_passes_arguments_and_keywords_of_any_name(manual, way, named):
    face = manual.with_options(name="poll") if named else manual
    keywords = dict.fromkeys(
        ["self", "fn", "delay", "when", "due_ns", "name", "args", "kwargs", "timeout"], 1
    )
    task = each_way(face)[way](echo, 1, "two", **keywords)
    assert task.name == ("poll" if named else None)
    assert manual.tick() == 1
    assert task.result() == ((1, "two"), keywords)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_runs_on_a_worker(make, way, named):
    scheduler = make(1)
    face = scheduler.with_options(name="poll") if named else scheduler
    assert each_way(face)[way](echo, 1).result(SOON) == ((1,), {})


def test_due_times_of_each_way(manual, clock):
    clock.advance_to_ns(7 * S)
    assert manual.submit(nothing).due_ns == 7 * S
    assert manual.submit_after(2.5, nothing).due_ns == 9_500_000_000
    assert manual.submit_after(timedelta(milliseconds=1), nothing).due_ns == 7_001_000_000
    assert manual.submit_at_ns(8 * S + 1, nothing).due_ns == 8 * S + 1
    assert [t.due_ns for t in manual.submit_many([nothing, nothing], 3)] == [10 * S] * 2
    assert [t.due_ns for t in manual.submit_many([nothing])] == [7 * S]
    options = manual.with_options(name="n")
    assert options.submit(nothing).due_ns == 7 * S
    assert options.submit_after(2, nothing).due_ns == 9 * S
    assert options.submit_at_ns(8 * S, nothing).due_ns == 8 * S
    assert [t.due_ns for t in options.submit_many([nothing], delay=1)] == [8 * S]


def test_with_options_gives_the_same_methods_and_a_name(manual):
    for name in ("", "poll", None, "x" * 10_000, "näme\0"):
        options = manual.with_options(name=name)
        tasks = [options.submit(nothing), options.submit_after(1, nothing)]
        tasks += options.submit_many([nothing, (nothing, 1)], 2)
        assert [task.name for task in tasks] == [name] * 4
        assert {manual.view(task.id).name for task in tasks} == {name}
        assert repr(options).startswith("<Options")
    assert manual.with_options().submit(nothing).name is None


def test_ids_count_from_one_in_order_of_admission(make, clock):
    scheduler = make(0, clock=clock, capacity=3)
    other = make(0, clock=clock)
    assert scheduler.submit_after(9, nothing).id == 1
    assert [t.id for t in scheduler.submit_many([nothing, nothing])] == [2, 3]
    for call in (lambda: scheduler.submit(nothing), lambda: scheduler.submit_many([nothing])):
        with pytest.raises(QueueFull):
            call()
    with pytest.raises(TypeError):
        scheduler.submit(None)
    assert scheduler.tick() == 2
    assert scheduler.submit(nothing).id == 4  # a refused submission uses up no id
    assert scheduler.with_options(name="n").submit(nothing).id == 5
    assert other.submit(nothing).id == 1


# -- capacity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_capacity_counts_queued_tasks_the_delayed_included(make, clock, capacity):
    scheduler = make(0, clock=clock, capacity=capacity)
    tasks = [scheduler.submit_after(n % 3, nothing) for n in range(capacity)]
    before = picture(scheduler)
    named = scheduler.with_options(name="n")
    calls = [*each_way(scheduler).values(), *each_way(named).values()]
    for rejected, call in enumerate(calls, 1):
        with pytest.raises(QueueFull, match=str(capacity)) as caught:
            call(nothing)
        assert isinstance(caught.value, RejectedError)
        assert isinstance(caught.value, RuntimeError)
        counts = counters(scheduler)
        assert counts.pop("rejected") == rejected
        assert picture(scheduler)[1:] == before[1:]
    tasks[0].cancel()
    scheduler.submit(nothing)
    room(scheduler, capacity)


def test_running_and_finished_tasks_do_not_count(make, gate):
    scheduler = make(1, capacity=1)
    running = scheduler.submit(gate)
    gate.wait_entered()
    queued = scheduler.submit(nothing)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    assert (running.state, queued.state) == (RUNNING, QUEUED)
    gate.release.set()
    queued.result(SOON)
    room(scheduler, 1)


def test_capacity_none_is_unbounded_and_the_most_ever_queued_is_kept(make, clock):
    scheduler = make(0, clock=clock, capacity=None)
    scheduler.submit_many([nothing] * 5000)
    assert scheduler.stats().max_queued == 5000
    scheduler.cancel_many(scheduler.tasks())
    scheduler.submit(nothing)
    assert (scheduler.stats().queued, scheduler.stats().max_queued) == (1, 5000)


def test_a_closed_scheduler_refuses_each_way_and_says_so(make, clock):
    for workers in (0, 1):
        scheduler = make(workers, clock=clock, capacity=1)
        scheduler.submit_after(1, nothing)
        scheduler.shutdown(wait=False)
        before = picture(scheduler)
        for call in each_way(scheduler).values():
            with pytest.raises(
                SchedulerClosed, match="cannot schedule new futures after shutdown"
            ) as caught:
                call(nothing)
            assert isinstance(caught.value, RejectedError)
        with pytest.raises(SchedulerClosed):
            scheduler.submit_many([nothing, nothing])
        with pytest.raises(SchedulerClosed):
            scheduler.map(nothing, [1])
        assert counters(scheduler)["rejected"] == 7
        assert picture(scheduler)[1:] == before[1:]


# -- submit_many ------------------------------------------------------------------------------


def test_submit_many_takes_callables_and_tuples_from_any_iterable(manual):
    tasks = manual.submit_many(call for call in (echo, (echo,), (echo, 1), (echo, 1, [2])))
    assert [task.id for task in tasks] == [1, 2, 3, 4]
    assert manual.tick() == 4
    assert [task.result() for task in tasks] == [((), {}), ((), {}), ((1,), {}), ((1, [2]), {})]
    assert manual.submit_many([]) == []
    assert manual.submit_many(iter(())) == []
    assert manual.stats().admitted == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_submit_many_is_all_or_nothing_at_the_capacity(make, clock, workers):
    scheduler = make(workers, clock=clock, capacity=10)
    scheduler.submit_many([nothing] * 4, delay=5)
    before = picture(scheduler)
    with pytest.raises(QueueFull, match="10"):
        scheduler.submit_many([nothing] * 7, delay=5)
    assert picture(scheduler)[1:] == before[1:]
    counts = counters(scheduler)
    assert (counts["queued"], counts["admitted"], counts["rejected"]) == (4, 4, 7)
    tasks = scheduler.submit_many([nothing] * 6, delay=5)
    assert [task.id for task in tasks] == [5, 6, 7, 8, 9, 10]
    with pytest.raises(QueueFull):
        scheduler.submit_many([nothing], delay=5)
    assert scheduler.cancel_many(tasks) == 6
    room(scheduler, 10)


@pytest.mark.parametrize("place", [0, 5, 9])
@pytest.mark.parametrize("bad", [None, 5, "no", [nothing], (), (None, 1), (5,), {}])
def test_submit_many_is_all_or_nothing_at_a_bad_call(manual, place, bad):
    manual.submit_after(1, nothing)
    calls = [nothing] * 10
    calls[place] = bad
    shown = bad[0] if isinstance(bad, tuple) and bad else bad
    match = re.escape(repr(shown)) if shown else None
    for face in (manual, manual.with_options(name="n")):
        before = picture(manual)
        with pytest.raises((TypeError, ValueError), match=match):
            face.submit_many(calls)
        assert picture(manual) == before


def test_submit_many_passes_on_what_the_iterable_raises(manual):
    def calls():
        yield nothing
        raise LookupError("no more")

    before = picture(manual)
    with pytest.raises(LookupError, match="no more"):
        manual.submit_many(calls())
    assert picture(manual) == before


def test_the_iterable_of_submit_many_may_submit_itself(manual):
    tasks = manual.submit_many((echo, manual.submit(nothing).id) for _ in range(3))
    assert [task.id for task in tasks] == [4, 5, 6]
    assert manual.tick() == 6
    assert [task.result()[0] for task in tasks] == [(1,), (2,), (3,)]


# -- map --------------------------------------------------------------------------------------


def test_map_gives_results_in_order_and_stops_at_the_shortest(make):
    scheduler = make(2)
    assert list(scheduler.map(pow, [2, 3, 4], [5, 2, 3])) == [32, 9, 64]
    assert list(scheduler.map(pow, itertools.count(1), [1, 2])) == [1, 4]
    assert list(scheduler.map(abs, [])) == []
    assert list(scheduler.map(abs, [-1, -2], timeout=SOON, chunksize=10)) == [1, 2]


def test_map_raises_at_its_place_and_cancels_the_rest(make, clock):
    scheduler = make(0, clock=clock)
    results = scheduler.map(lambda n: 1 // n, [1, 0, 2])
    scheduler.tick()
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_submits_what_there_is_room_for_and_the_rest_as_results_are_taken(make, clock):
    scheduler = make(0, clock=clock, capacity=5)
    mine = scheduler.submit_after(1, nothing)
    results = scheduler.map(nothing, range(6))
    assert (counters(scheduler)["queued"], counters(scheduler)["rejected"]) == (5, 0)
    assert scheduler.tick() == 4
    assert next(results) is None
    assert scheduler.tick() == 2
    assert len(list(results)) == 5
    assert scheduler.tasks() == [mine]
    room(scheduler, 5)


def test_map_times_out_in_real_time_and_cancels_what_is_left(make, clock, gate):
    scheduler = make(1, clock=clock)
    results = scheduler.map(lambda n: gate(n), range(3), timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    gate.release.set()
    wait_until(lambda: scheduler.stats().queued == 0, "the rest to be cancelled")
    assert counters(scheduler)["admitted"] == 3


def test_leaving_a_map_early_cancels_what_is_left(make, clock):
    scheduler = make(0, clock=clock)
    results = scheduler.map(abs, [-1, -2, -3])
    assert len(scheduler.tasks()) == 3
    first = scheduler.tasks()[0]
    scheduler.get(2).cancel()
    assert scheduler.tick() == 2
    assert first.state == SUCCEEDED
    assert next(results) == 1
    results.close()
    assert scheduler.view(2).state == CANCELLED


def test_a_subclass_of_scheduler_works_on_both_engines(engine, clock):
    class Mine(Scheduler):
        def twice(self, fn):
            return [self.submit(fn), self.submit(fn)]

    scheduler = Mine(0, clock=clock, engine=engine)
    tasks = scheduler.twice(lambda: 3)
    assert scheduler.tick() == 2
    assert [task.result() for task in tasks] == [3, 3]
    assert isinstance(scheduler, Mine)
