"""A full queue: who is refused, who is asked, and what is counted."""

import pytest

from duepool import QueueFull, SchedulerClosed
from duepool._values import AFTER, AHEAD, AT, DROPPED, ENTER, HERE, NOW, REJECT, RUN, TRY

from .support import QUEUED, S, elsewhere

BOUNDED = [ENTER, TRY, AHEAD, REJECT]


def full(bench, **config):
    """An engine of three places, all taken."""
    made = bench(capacity=3, **config)
    made.many(3, after=5)
    return made


@pytest.mark.parametrize("mode", [ENTER, REJECT])
def test_without_a_policy_a_full_queue_refuses_and_counts(bench, mode):
    b = full(bench)
    with pytest.raises(QueueFull, match="capacity is 3"):
        b.enter(mode=mode)
    with pytest.raises(QueueFull, match="2 tasks"):
        b.many(2, mode=mode)
    assert b.core.counts().rejected == 3
    assert b.core.counts().admitted == 3


@pytest.mark.parametrize("mode", [TRY, AHEAD])
def test_trying_a_full_queue_gives_none_and_counts_nothing(bench, mode):
    b = full(bench)
    assert b.enter(mode=mode) is None
    assert b.many(2, mode=mode) is None
    assert b.core.counts().rejected == 0
    assert b.core.counts().admitted == 3


@pytest.mark.parametrize("mode", BOUNDED)
def test_what_fits_enters_in_every_bounded_mode(bench, mode):
    b = bench(capacity=3)
    task = b.enter(divmod, 7, 2, mode=mode, name="seven", after=1)
    assert (task.state, task.name, task.due_ns) == (QUEUED, "seven", 1 * S)
    assert [t.id for t in b.many(2, mode=mode)] == [2, 3]
    assert b.fits() == 0
    b.clock.advance(1)
    assert b.core.tick() == 3
    assert task.result() == (3, 1)
    assert b.fits() == 3


@pytest.mark.parametrize("mode", BOUNDED)
def test_many_enter_all_or_none(bench, mode):
    b = bench(capacity=3, overload=lambda *_: None)
    b.enter(after=1)
    if mode == REJECT:
        with pytest.raises(QueueFull):
            b.many(3, mode=mode)
    else:
        assert b.many(3, mode=mode) is None
    assert b.core.counts().admitted == 1
    assert b.fits() == 2
    assert [t.id for t in b.many(2, mode=mode)] == [2, 3]


def test_the_policy_gets_the_whole_submission_and_its_answer_is_returned(bench):
    asked = []

    def policy(core, submission):
        asked.append((core, submission))
        return f"answer {len(asked)}"

    b = full(bench, overload=policy, quotas=(1,))
    arguments = {"one": 1}
    answers = [
        b.enter(divmod, 7, 2),
        b.enter(dict, kwargs=arguments, name="a name", after=4, shown="four"),
        b.enter(int, at=9, tenant=0),
        b.core.submit_many_as("many", [int, (divmod, 7, 2)], 2 * S, 2, 0),
        b.core.submit_many_as(None, [int], 0),
    ]
    assert answers == ["answer 1", "answer 2", "answer 3", "answer 4", "answer 5"]
    assert [core for core, _ in asked] == [b.core] * 5
    assert [submission for _, submission in asked] == [
        (None, NOW, 0, [(divmod, (7, 2), None)], None, -1, False),
        ("a name", AFTER, 4 * S, [(dict, (), arguments)], "four", -1, False),
        (None, AT, 9, [(int, (), None)], None, 0, False),
        ("many", AFTER, 2 * S, [(int, (), None), (divmod, (7, 2), None)], 2, 0, True),
        (None, NOW, 0, [(int, (), None)], None, -1, True),
    ]
    assert b.core.counts().rejected == 0
    assert b.core.counts().admitted == 3


def test_the_policy_is_called_outside_every_lock(bench):
    def policy(core, submission):
        # Another thread gets through to the same engine; so does this one.
        elsewhere(core.counts)
        assert core.oldest().cancel()
        return core.submit_as(*submission[:3], *submission[3][0], *submission[4:6], mode=TRY)

    b = full(bench, overload=policy)
    task = b.enter(divmod, 7, 2)
    assert task.id == 4
    assert b.core.tick() == 1
    assert task.result() == (3, 1)


def test_what_the_policy_raises_reaches_the_caller(bench):
    def policy(core, submission):
        raise QueueFull("not today")

    b = full(bench, overload=policy)
    with pytest.raises(QueueFull, match="not today"):
        b.enter()
    assert b.core.counts().rejected == 0


@pytest.mark.parametrize("mode", [TRY, AHEAD, REJECT, RUN, HERE, DROPPED])
def test_only_an_ordinary_submission_asks_the_policy(bench, mode):
    asked = []
    b = full(bench, overload=lambda *_: asked.append(1))
    if mode == REJECT:
        with pytest.raises(QueueFull):
            b.enter(mode=mode)
    else:
        b.enter(mode=mode)
    assert not asked


@pytest.mark.parametrize("mode", [ENTER, TRY, AHEAD, HERE, DROPPED, REJECT])
def test_a_closed_engine_raises_and_counts(bench, mode):
    b = bench(capacity=1, overload=lambda *_: pytest.fail("asked"))
    b.core.close(0)
    with pytest.raises(SchedulerClosed):
        b.enter(mode=mode)
    assert b.core.counts().rejected == 1
    if mode in BOUNDED:
        with pytest.raises(SchedulerClosed):
            b.many(3, mode=mode)
        assert b.core.counts().rejected == 4
    assert b.core.counts().admitted == 0


def test_wrong_arguments_come_before_a_full_queue(bench):
    b = full(bench, overload=lambda *_: pytest.fail("asked"), past_due_reject=True)
    b.clock.advance(1)
    for mode in BOUNDED:
        with pytest.raises(ValueError, match="past_due"):
            b.enter(at=1, mode=mode)
        with pytest.raises(OverflowError):
            b.enter(after=2**62, mode=mode)
        with pytest.raises(TypeError):
            b.enter(5, mode=mode)
    assert b.core.counts().rejected == 0


def test_coroutine_functions_are_bodies_where_the_configuration_says_so(bench):
    async def body():
        pass

    b = bench()
    for mode in [ENTER, TRY, AHEAD, RUN, HERE, DROPPED, REJECT]:
        with pytest.raises(TypeError, match="coroutine"):
            b.enter(body, mode=mode)
    with pytest.raises(TypeError, match="coroutine"):
        b.core.submit_many_as(None, [int, body], 0)
    assert b.core.counts().admitted == 0
    b = bench(coroutines=True)
    assert b.enter(body, mode=RUN).id == 1
    assert [t.id for t in b.core.submit_many_as(None, [int, body], 0)] == [2, 3]
    with pytest.raises(TypeError, match="callable"):
        b.enter(5)
