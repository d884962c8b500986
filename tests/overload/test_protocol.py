"""Policies of the user's own, and what a ``Submission`` offers them."""

import pytest

from duepool import QueueFull, Scheduler, SchedulerClosed, TaskState, overload

from .support import SOON, Aside, blocked, check_left_behind, echo, in_line, nothing, wait_until

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


class By:
    """A policy that does what a function says."""

    def __init__(self, decide):
        self.on_full = decide


@pytest.fixture
def full(make, clock):
    """Makes a scheduler in manual mode, capacity 1, its place taken, with a policy as given."""

    def factory(decide, **kwargs):
        scheduler = make(0, clock=clock, capacity=1, overload=By(decide), **kwargs)
        return scheduler, scheduler.submit_after(1, nothing)

    return factory


def test_it_is_asked_on_the_submitting_thread_outside_all_locks(full):
    import threading

    seen = []

    def decide(submission):
        seen.append((threading.current_thread(), scheduler.stats().queued, repr(scheduler)))
        assert Aside(scheduler.stats).result().queued == 1
        return submission.discard()

    scheduler, _ = full(decide)
    task = scheduler.submit(nothing)
    assert task.cancel_reason == "dropped"
    assert seen[0][:2] == (threading.current_thread(), 1)


def test_what_a_submission_tells(full):
    seen = []

    def decide(submission):
        seen.append((submission.count, submission.name, submission.tenant, repr(submission)))
        return submission.discard()

    scheduler, _ = full(decide, quotas={"a": 5})
    scheduler.submit(nothing)
    scheduler.with_options(name="n", tenant="a").submit_after(3, nothing)
    scheduler.with_options(tenant="none").submit_many([nothing] * 2)
    assert seen == [
        (1, None, None, "<Submission of 1 task>"),
        (1, "n", "a", "<Submission of 1 task, name='n', tenant='a'>"),
        (2, None, None, "<Submission of 2 tasks>"),
    ]


def test_any_task_of_the_scheduler_will_do(full):
    scheduler, first = full(lambda submission: first)
    assert scheduler.submit(nothing) is first
    assert scheduler.stats().admitted == 1


def test_a_policy_that_sheds_by_name(full):
    def decide(submission):
        if submission.name == "vital":
            submission.drop_oldest()
            return submission.retry()
        return submission.reject()

    scheduler, first = full(decide)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    task = scheduler.with_options(name="vital").submit(nothing)
    assert (task.state, first.cancel_reason) == (QUEUED, "dropped")
    check_left_behind(scheduler, 1)


ANSWERS = {
    "None": lambda scheduler, other: None,
    "a number": lambda scheduler, other: 5,
    "a task of another scheduler": lambda scheduler, other: other,
    "a list": lambda scheduler, other: [scheduler.tasks()[0]],
    "a future": lambda scheduler, other: __import__("concurrent.futures").futures.Future(),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_no_task_of_this_scheduler_is_refused(full, make, clock, answer):
    other = make(0, clock=clock).submit(nothing)
    scheduler, first = full(lambda submission: ANSWERS[answer](scheduler, other))
    with pytest.raises(
        TypeError, match=r"on_full\(\) of the overload policy .* must return a task"
    ):
        scheduler.submit(nothing)
    assert scheduler.tasks() == [first]
    check_left_behind(scheduler, 1)


@pytest.mark.parametrize("made", [lambda t: t, lambda t: [t], lambda t: [t] * 3, lambda t: (t, t)])
def test_for_submit_many_it_is_a_list_of_as_many(full, made):
    scheduler, first = full(lambda submission: made(first))
    with pytest.raises(TypeError, match="must return a list of 2 tasks"):
        scheduler.submit_many([nothing] * 2)
    scheduler, first = full(lambda submission: [first, first])
    assert scheduler.submit_many([nothing] * 2) == [first, first]


def test_what_it_has_let_in_is_taken_back_when_it_fails(full):
    def decide(submission):
        first.cancel()
        made.append(submission.retry())
        assert made[-1].state == QUEUED
        if scheduler.stats().admitted == 2:
            raise KeyError("mine")
        return "nonsense"

    made = []
    scheduler, first = full(decide)
    with pytest.raises(KeyError, match="mine"):
        scheduler.submit(nothing)
    first = scheduler.submit_after(1, nothing)
    with pytest.raises(TypeError):
        scheduler.submit(nothing)
    assert [(t.state, t.cancel_reason) for t in made] == [(CANCELLED, "dropped")] * 2
    check_left_behind(scheduler, 1)


def test_it_is_admitted_once_at_most(full):
    def decide(submission):
        assert submission.retry() is None
        first.cancel()
        task = submission.retry()
        calls = ("retry", "wait", "run_here", "discard", "reject")
        assert [getattr(submission, call)() for call in calls] == [task] * 5
        assert submission.drop_oldest() is None
        kept.append(submission)
        return task

    kept = []
    scheduler, first = full(decide)
    assert scheduler.submit(nothing).state == QUEUED
    assert scheduler.stats().admitted == 2
    for call in ("retry", "wait", "run_here", "discard", "reject", "drop_oldest"):
        with pytest.raises(RuntimeError, match="inside on_full"):
            getattr(kept[0], call)()


def test_wait_gives_none_when_the_time_has_passed(full):
    answers = []

    def decide(submission):
        answers.append(submission.wait(0.01))
        answers.append(submission.wait(0))
        return submission.discard()

    scheduler, _ = full(decide)
    scheduler.submit(nothing)
    assert answers == [None, None]
    assert in_line(scheduler) == 0
    for bad, error in ((float("nan"), ValueError), ("1", TypeError)):
        scheduler, _ = full(lambda submission, bad=bad: submission.wait(bad))
        with pytest.raises(error, match="timeout"):
            scheduler.submit(nothing)
        check_left_behind(scheduler, 1)


def test_a_policy_may_wait_and_then_do_something_else(full):
    def decide(submission):
        return submission.wait(0.01) or submission.run_here() or submission.reject()

    scheduler, first = full(decide)
    assert scheduler.submit(echo, 3).result() == 3
    waiting = Aside(scheduler.submit_after, 5, nothing)
    with pytest.raises(QueueFull):
        waiting.result()
    first.cancel()
    assert scheduler.submit(echo, 4).state == QUEUED


def test_a_policy_may_use_the_scheduler(full):
    spilled = []

    def decide(submission):
        first.cancel()
        spilled.append(scheduler.submit(nothing))
        scheduler.cancel(spilled[-1])
        return submission.retry()

    scheduler, first = full(decide)
    assert scheduler.submit(nothing).state == QUEUED
    assert [task.state for task in spilled] == [CANCELLED]


def test_a_policy_that_closes_the_scheduler(full):
    def decide(submission):
        scheduler.shutdown(wait=False)
        return submission.retry()

    scheduler, _ = full(decide)
    with pytest.raises(SchedulerClosed):
        scheduler.submit(nothing)


def test_drop_oldest_takes_nothing_from_those_who_wait(full, clock):
    # The one that waits keeps its place in line; the newcomer takes the place that it made.
    def decide(submission):
        if submission.name == "patient":
            return submission.wait()
        assert submission.drop_oldest() is not None
        return submission.retry()

    scheduler, first = full(decide)
    waiting = blocked(scheduler, scheduler.with_options(name="patient").submit, nothing)
    room = scheduler._engine.config.face.room
    notify = room.notify
    room.notify = lambda: None  # the one that waits is slow
    task = scheduler.submit_after(1, nothing)
    room.notify = notify
    assert (task.state, first.state, waiting.ended) == (QUEUED, CANCELLED, False)
    task.cancel()
    assert waiting.result().state == QUEUED


def test_a_subclass_of_a_policy_and_the_protocol(make, clock):
    class Patient(overload.Block):
        def on_full(self, submission):
            asked.append(submission.count)
            return super().on_full(submission)

    asked = []
    scheduler = make(0, clock=clock, capacity=1, overload=Patient(0))
    assert isinstance(Patient(), overload.Policy)
    assert not isinstance(object(), overload.Policy)
    scheduler.submit(nothing)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    assert asked == [1]


def test_a_policy_keeps_no_scheduler_alive(engine):
    import gc
    import weakref

    policy = overload.Block(0)
    scheduler = Scheduler(0, engine=engine, capacity=1, overload=policy)
    scheduler.submit(nothing)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    core = weakref.ref(scheduler._engine)
    del scheduler
    gc.collect()
    assert core() is None


def test_what_waits_keeps_nothing_once_it_is_over(full):
    import weakref

    class Argument:
        pass

    argument = Argument()
    gone = weakref.ref(argument)
    scheduler, _ = full(lambda submission: submission.wait(0.01) or submission.discard())
    scheduler.submit(nothing, argument)
    del argument
    wait_until(lambda: gone() is None, "the argument to be released", SOON)
