"""§3: what is refused by design: copying, pickling, and setting the outcome of a task."""

import copy
import pickle
from concurrent.futures import InvalidStateError

import pytest

import duepool
from duepool import Scheduler, Task

from .support import QUEUED, nothing, picture


@pytest.fixture(params=["queued", "running", "done", "cancelled"])
def any_task(make, clock, request):
    """A manual scheduler and a task of it in some state, and how to look at both from within."""
    scheduler = make(0, clock=clock)
    if request.param == "running":
        seen = []

        def look(check):
            seen.append(scheduler.submit(lambda: check(scheduler, duepool.current_task())))
            scheduler.tick()
            seen.pop().result()

        return look
    task = scheduler.submit(nothing)
    if request.param == "done":
        scheduler.tick()
    elif request.param == "cancelled":
        task.cancel()
    return lambda check: check(scheduler, task)


def test_the_outcome_of_a_task_is_the_schedulers(any_task):
    def check(scheduler, task):
        state = task.state
        before = picture(scheduler)
        for call in (
            lambda: task.set_result(1),
            lambda: task.set_exception(ValueError()),
            lambda: task.set_exception(None),
            lambda: task.set_running_or_notify_cancel(),
        ):
            with pytest.raises(InvalidStateError):
                call()
            assert task.state == state
            assert picture(scheduler) == before

    any_task(check)


def test_a_task_is_neither_copied_nor_pickled(any_task):
    def check(_scheduler, task):
        calls = [
            lambda: copy.copy(task),
            lambda: copy.deepcopy(task),
            lambda: copy.deepcopy([task]),
        ]
        calls += [lambda p=p: pickle.dumps(task, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
        for call in calls:
            with pytest.raises(TypeError, match="Task"):
                call()

    any_task(check)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_scheduler_is_neither_copied_nor_pickled(make, workers):
    scheduler = make(workers)
    calls = [lambda: copy.copy(scheduler), lambda: copy.deepcopy({1: scheduler})]
    calls += [lambda p=p: pickle.dumps(scheduler, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for call in calls:
        with pytest.raises(TypeError, match="Scheduler"):
            call()


def test_a_task_is_never_made_by_hand(make, clock):
    with pytest.raises(TypeError, match="submit"):
        Task()
    task = make(0, clock=clock).submit(nothing)
    with pytest.raises(TypeError):
        type(task)()
    with pytest.raises(TypeError):
        task.__init__()
    assert task.state == QUEUED


def test_what_a_task_says_of_itself_cannot_be_set(make, clock):
    task = make(0, clock=clock).submit(nothing)
    for name in ("id", "due_ns", "name", "state", "cancel_reason"):
        with pytest.raises(AttributeError):
            setattr(task, name, 5)
    assert (task.id, task.due_ns, task.name, task.state) == (1, 0, None, QUEUED)


def test_tasks_are_hashed_and_compared_by_identity(make, clock):
    scheduler = make(0, clock=clock)
    first, second = scheduler.submit(nothing), scheduler.submit(nothing)
    assert first == first
    assert first != second
    assert len({first, second, first}) == 2
    with pytest.raises(TypeError):
        first < second  # noqa: B015


def test_the_exceptions_are_what_their_users_expect():
    parents = {
        "RejectedError": RuntimeError,
        "QueueFull": duepool.RejectedError,
        "SchedulerClosed": duepool.RejectedError,
        "WouldDeadlock": RuntimeError,
        "ClockError": RuntimeError,
        "UnknownTask": KeyError,
        "CancelRequested": BaseException,
    }
    for name, parent in parents.items():
        kind = getattr(duepool, name)
        assert issubclass(kind, parent)
        assert getattr(duepool.errors, name) is kind
    assert not issubclass(duepool.CancelRequested, Exception)
    assert str(duepool.UnknownTask("a sentence")) == "a sentence"


def test_later_options_may_be_given_as_off(engine):
    scheduler = Scheduler(
        0,
        engine=engine,
        executor=None,
        max_in_flight=None,
        overload="reject",
        quotas=None,
        wrap=(),
        late_after=None,
        on_event=None,
    )
    assert scheduler.tick() == 0
