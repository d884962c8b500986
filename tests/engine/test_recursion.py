"""Close to the recursion limit a call is refused where it has changed nothing, or comes to its end:
no body is left running, and nobody untold."""

import sys

import pytest

from duepool._values import AHEAD, DROPPED, HERE, RUN, TRY

from .support import RUNNING, RoomDouble

LIMIT = 400
LEVELS = 120  # more than any of these calls needs


def at_depth(depth, call):
    """Call ``call()`` under so many Python frames."""
    if depth:
        return at_depth(depth - 1, call)
    return call()


def nearly_out_of(levels, call):
    """What ``call()`` gives with so many levels left under the limit; True if it came to an end."""
    here = 0
    frame = sys._getframe()
    while frame is not None:
        here += 1
        frame = frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(here + LIMIT)
    try:
        at_depth(LIMIT - levels, call)
        return True
    except RecursionError:
        return False
    finally:
        sys.setrecursionlimit(before)


def watched(b, told):
    """A task whose end is told to C code, which needs no level."""
    task = b.enter(divmod, 7, 2)
    assert task._watch(told.append)
    return task


CALLS = {
    "here": lambda b, task: b.enter(divmod, 7, 2, mode=HERE),
    "dropped": lambda b, task: b.enter(divmod, 7, 2, mode=DROPPED),
    "run": lambda b, task: b.enter(divmod, 7, 2, mode=RUN),
    "try": lambda b, task: b.enter(divmod, 7, 2, mode=TRY),
    "many": lambda b, task: b.many(2, mode=AHEAD),
    "tick": lambda b, task: b.core.tick(),
    "cancel": lambda b, task: b.core.cancel_only_queued(task),
    "cancel_runs": lambda b, task: b.core.cancel_runs(),
    "move": lambda b, task: b.core.move_to(task, 0),
    "slots": lambda b, task: b.core.free_slot() if b.core.take_slot() == 0 else None,
    "close": lambda b, task: b.core.close(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_half_done(bench, name, caplog):
    ends = []
    for levels in range(2, LEVELS):
        room, told = RoomDouble(), []
        b = bench(capacity=9, room=room)
        tasks = [watched(b, told)]
        tasks.append(b.enter(mode=RUN))
        assert tasks[1]._watch(told.append)
        b.core.enter_line(-1)
        places = b.fits()
        ends.append(nearly_out_of(levels, lambda: CALLS[name](b, tasks[0])))  # noqa: B023
        b.check()
        assert b.core.counts().running == 0
        assert {task.id for task in told} == {task.id for task in tasks if task.done()}
        assert len(told) == len({id(task) for task in told})
        if name in ("slots", "here", "dropped", "move", "run"):
            assert b.fits() == places
        b.core.leave_line(-1)
        b.core.tick()
        assert len(told) == 2
    # Refused at the limit, done where there is room: the range is wide enough to see both.
    assert not ends[0]
    assert ends[-1]


@pytest.mark.parametrize("name", ["tick", "conclude"])
def test_no_body_is_lost_that_runs_elsewhere(handed, name, caplog):
    ends = []
    for levels in range(2, LEVELS):
        b, hand = handed(inline=name == "tick")
        told = []
        task = watched(b, told)
        if name == "tick":
            ends.append(nearly_out_of(levels, b.core.tick))
            assert task.state != RUNNING
            b.core.tick()
        else:
            b.core.tick()
            ends.append(nearly_out_of(levels, lambda: hand.end(task)))  # noqa: B023
            if not task.done():
                hand.end(task)
        b.check()
        assert told == [task]
        if task._failure is not None:
            task._failure.observed = True
    assert not ends[0]
    assert ends[-1]
