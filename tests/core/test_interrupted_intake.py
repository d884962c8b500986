"""The reference engine's other ways in and out under signal handlers that raise: the same tracer as
in ``test_reference_interrupts``, over places, lines, modes, moves and ends elsewhere."""

import threading

import pytest
from engine.support import (
    CANCELLED,
    QUEUED,
    RUNNING,
    SOON,
    Bench,
    HandDouble,
    RoomDouble,
    elsewhere,
)

import duepool
from duepool._values import AHEAD, DROPPED, HERE, RUN, TRY

from .test_reference_interrupts import Cutter

CAPACITY, QUOTA = 9, 4


def plain():
    """A body that is no place to cut: it runs no code of the engine."""


class Stage:
    """An engine with something of everything in it, and who was told of which end."""

    def __init__(self, in_line, handing):
        self.room = RoomDouble()
        self.hand = HandDouble() if handing else None
        self.b = Bench("python", capacity=CAPACITY, quotas=(QUOTA,), room=self.room, hand=self.hand)
        self.core = self.b.core
        self.told = []
        self.tasks = [self.b.enter(plain, after=n, tenant=n % 2 - 1) for n in (3, 1, 0, 2)]
        self.runs = [self.b.enter(plain, after=n, mode=RUN) for n in (1, 2)]
        for task in self.tasks + self.runs:
            task.add_done_callback(self.told.append)
        assert self.core.take_slot(0) == 0
        self.in_line = in_line
        if in_line:
            self.core.enter_line(-1)
        self.free = self.b.fits(), self.b.fits(0)
        self.admitted = self.core.counts().admitted

    def check(self):
        """The structures agree, as another thread sees them; everybody was told, once."""
        elsewhere(self.b.check)
        core = self.core
        with core.monitor.lock():
            core.heap.check()
            queued = [r for r in core.table.records() if r.state == QUEUED]
            assert {r.id for r in core.heap.records()} == {r.id for r in queued}
            assert all(r.holds_slot != r.slotless for r in queued)
            held = [r for r in queued if r.holds_slot]
            admission = core.admission
            # What is more than the tasks' own are places of jobs.
            jobs = admission.queued - len(held)
            assert jobs == admission.taken[0] - sum(r.tenant == 0 for r in held)
            assert admission.in_line == admission.waiting + sum(admission.lines)
            assert (core.blocked, core.table.cancel_requested) == (0, 0)
        ended = {task.id for task in self.tasks + self.runs if task.done()}
        assert {task.id for task in self.told} == ended
        assert len(self.told) == len(ended)


def conclude(stage):
    stage.hand.given[0][0]._engine.conclude(stage.tasks[2], 7, None)


OPERATIONS = {
    "take_slot": lambda s: s.core.take_slot(0, AHEAD),
    "free_slot": lambda s: s.core.free_slot(0),
    "enter_line": lambda s: s.core.enter_line(0),
    "leave_line": lambda s: s.core.leave_line(-1),
    "room_for": lambda s: s.core.room_for(1, 0),
    "oldest": lambda s: s.core.oldest(0),
    "try": lambda s: s.b.enter(plain, mode=TRY, tenant=0),
    "ahead": lambda s: s.b.many(2, mode=AHEAD, tenant=0),
    "run": lambda s: s.b.enter(plain, mode=RUN),
    "here": lambda s: s.b.enter(plain, mode=HERE),
    "dropped": lambda s: s.b.enter(plain, mode=DROPPED),
    "cancel_only_queued": lambda s: s.core.cancel_only_queued(s.tasks[0], 5),
    "cancel_runs": lambda s: s.core.cancel_runs(),
    "move_to": lambda s: s.core.move_to(s.tasks[0], 5),
    "tick": lambda s: s.core.tick(),
    "close": lambda s: s.core.close(0),
    "give": lambda s: s.core.tick(),
    "conclude": conclude,
}


@pytest.mark.parametrize("in_line", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_from_a_signal_handler_leaves_no_step_half_done(operation, in_line, capsys):
    if operation == "leave_line" and not in_line:
        return
    k = 0
    while True:
        stage = Stage(in_line, operation in ("give", "conclude"))
        core = stage.core
        if operation == "conclude":
            assert core.tick() == 1
        cutter = Cutter(k)
        outcome = []
        cutter.run(lambda: outcome.append(OPERATIONS[operation](stage)))  # noqa: B023
        if cutter.where is None:
            break
        try:
            after(stage, operation, bool(outcome))
        except BaseException as error:
            error.add_note(f"cut at place {k}: {cutter.where}")
            raise
        finally:
            for task in stage.tasks:
                if task._failure is not None:
                    task._failure.observed = True
        k += 1
    assert k > 3
    capsys.readouterr()


def after(stage, operation, returned):
    """What must be so after a cut; ``returned``: the operation came to its end all the same."""
    core, b = stage.core, stage.b
    stage.check()
    places, lines = (b.fits(), b.fits(0)), core.admission.in_line
    free = stage.free
    if operation == "take_slot":
        assert places == ((free[0] - 1, free[1] - 1) if returned else free)
    elif operation == "free_slot":
        # Cut before it had begun, or done.
        more = (free[0] + 1, free[1] + 1)
        assert places == more or (places == free and not returned)
    elif operation == "enter_line":
        assert lines == stage.in_line + returned
    elif operation == "leave_line":
        assert lines in (0, 1)
    elif operation in ("room_for", "oldest", "here", "dropped", "run", "move_to", "cancel_runs"):
        assert places == free
    if operation in ("here", "dropped"):
        # In it or not; never left running.
        assert core.counts().admitted - stage.admitted in (0, 1)
        assert core.counts().running == 0
    if operation == "give":
        # It runs elsewhere, has failed, or is still queued; never both lost and unended.
        task = stage.tasks[2]
        given = [entry[0] for entry in stage.hand.given]
        assert (task.state == RUNNING) == (task in given)
        assert stage.hand.free._value in (10**6, 10**6 - 1, 10**6 - 2)
    if operation == "conclude":
        task = stage.tasks[2]
        assert task.state in (RUNNING, duepool.TaskState.SUCCEEDED)
        assert task.done() == (task in stage.told)
    # The engine goes on.
    if stage.hand is None and operation != "close":
        b.clock.advance(9)
        core.tick()
        stage.check()
        assert not core.tasks()
        if lines:
            core.leave_line(-1 if stage.in_line else 0)
    if operation == "close" and core.counts().closed:
        assert b.enter(plain, mode=RUN) is None
    b.close()
    assert all(task.done() or task.state == RUNNING for task in stage.tasks + stage.runs)


def test_a_room_that_is_told_for_ever_in_vain_keeps_nobody(capsys):
    stage = Stage(True, False)
    stage.room.raises = [KeyboardInterrupt() for _ in range(1000)]
    with pytest.raises(KeyboardInterrupt):
        stage.core.cancel_only_queued(stage.tasks[0])
    assert stage.tasks[0].state == CANCELLED
    stage.check()


def test_a_hand_that_is_cut_short_when_it_has_the_body_goes_on_with_it():
    stage = Stage(False, True)
    task, keep = stage.tasks[2], stage.hand.give

    def give(*given):
        keep(*given)
        raise KeyboardInterrupt("too late")

    stage.hand.give = give
    with pytest.raises(KeyboardInterrupt, match="too late"):
        stage.core.tick()
    assert task.state == RUNNING
    stage.hand.end(task, 7)
    assert task.result() == 7
    stage.check()
    stage.b.close()


def test_a_drop_under_the_engines_own_lock_ends_the_runs_of_jobs_too():
    # A garbage collection under the monitor may find the face dead: a worker then closes.
    b = Bench("python", 1)
    task, run = b.enter(divmod, 7, 2, after=1), b.enter(plain, mode=RUN, after=1)
    ended = threading.Event()
    run.add_done_callback(lambda _: ended.set())
    with b.core.monitor.lock():
        b.core.drop()
        assert not run.done()
    assert ended.wait(SOON)
    assert (run.state, run.cancel_reason) == (CANCELLED, "shutdown")
    assert task.state == QUEUED
    b.clock.advance(1)
    assert task.result(SOON) == (3, 1)
    assert b.crew.latch.wait(lambda: b.core.counts().live_workers == 0, SOON)
