"""An exception from a signal handler at every place where one could be served.

CPython looks for signals at function entries, after calls of C functions and at backward jumps. A
tracer raises at the k-th such place in the code under test, for every k: afterwards the capacity is
what it was, to the place, nobody is left in line, and those who wait are still served.
"""

import dis
import gc
import sys
import threading
from functools import partial

import pytest

from duepool import ManualClock, QueueFull, Scheduler, TaskState, _room, overload
from duepool.overload import job_slot

from .support import Aside, blocked, check_left_behind, echo, in_line, nothing

_CALLS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW"}
_FILES = ("_room.py", "_line.py", "_submission.py", "overload.py", "_mapping.py")


class Cut(BaseException):
    """What the signal handler raises."""


class Cutter:
    """Runs a call and raises ``Cut`` at the k-th place."""

    def __init__(self, k):
        self.left = k
        self.where = []  # empty: the call has fewer places
        self._last = {}  # frame -> [last opcode, whether it entered a Python function]

    def run(self, call):
        gc.disable()  # a finalizer would swallow the exception
        sys.settrace(self._entered)
        try:
            return call()
        finally:
            sys.settrace(None)
            gc.enable()
            self._last.clear()

    def resume(self, j):
        """Raise once more, at the j-th place from here: what a tracer raises ends the tracing."""
        if self.where:
            self.left = j
            sys.settrace(self._entered)

    def _place(self, frame):
        self.left -= 1
        if self.left == -1:
            code = frame.f_code
            self.where.append(f"{code.co_name} in {code.co_filename}, line {frame.f_lineno}")
            raise Cut

    def _entered(self, frame, event, arg):
        if frame.f_back in self._last:
            self._last[frame.f_back][1] = True
        if not frame.f_code.co_filename.endswith(_FILES):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._last[frame] = ["", False]
        self._place(frame)
        return self._opcode

    def _opcode(self, frame, event, arg):
        if event == "opcode":
            name, entered = self._last[frame]
            self._last[frame] = [dis.opname[frame.f_code.co_code[frame.f_lasti]], False]
            if (name in _CALLS and not entered) or name.startswith("JUMP_BACKWARD"):
                self._place(frame)
        return self._opcode


class Scene:
    """A scheduler in manual mode, capacity 2, both places taken; and who else waits in line."""

    def __init__(self, engine, policy):
        self.scheduler = Scheduler(
            0, clock=ManualClock(), engine=engine, capacity=2, overload=policy
        )
        self.held = [self.scheduler.submit_after(1, nothing) for _ in range(2)]
        self.others = []

    def by_another_thread(self, call, *args):
        assert Aside(call, *args).result() in (True, None)


def served(scene, monkeypatch):
    """A blocked submission; as soon as it sleeps, another thread makes room for it."""
    acquire = _room.acquire

    def cancel_and_acquire(lock, limit_s):
        for task in scene.held:
            scene.by_another_thread(task.cancel)
        return acquire(lock, limit_s)

    monkeypatch.setattr(_room, "acquire", cancel_and_acquire)


def submits(scene):
    return scene.scheduler.submit(nothing)


def submits_many(scene):
    return scene.scheduler.submit_many([nothing] * 2)


def takes_a_place(scene):
    job_slot(scene.scheduler._engine)
    try:
        return True
    finally:
        scene.took = True


def maps(scene):
    results = scene.scheduler.map(echo, range(3))
    try:
        scene.held[0].cancel()
        scene.held[1].cancel()
        results._refill()
        scene.scheduler.tick()
        return next(results)
    finally:
        results.close()


def maps_in_line(scene):
    results = scene.scheduler.map(nothing, range(3), timeout=0)
    try:
        return next(results)
    except TimeoutError:
        return None
    finally:
        results.close()


OPERATIONS = {
    "served": (overload.Block(), submits),
    "many_served": (overload.Block(), submits_many),
    "timed_out": (overload.Block(0), submits),
    "rejected": (type("Mine", (overload.Reject,), {})(), submits),
    "caller_runs": (overload.CallerRuns(), submits_many),
    "drop_oldest": (overload.DropOldest(), submits),
    "drop_oldest_many": (overload.DropOldest(), submits_many),
    "drop_newest": (overload.DropNewest(), submits_many),
    "job_blocked": (overload.Block(), takes_a_place),
    "job_timed_out": (overload.Block(0), takes_a_place),
    "job_drops": (overload.DropOldest(), takes_a_place),
    "job_refused": (overload.Reject(), takes_a_place),
    "map": (overload.Reject(), maps),
    "map_in_line": (overload.Reject(), maps_in_line),
}


def attempt(engine, operation, monkeypatch, k, j=None):
    """One round; where it was cut, and how many tasks of its own it left in the queue."""
    policy, call = OPERATIONS[operation]
    scene = Scene(engine, policy)
    scene.took = False
    cutter = Cutter(k)
    cut = True
    answer = None
    with monkeypatch.context() as patch:
        if operation in ("served", "many_served", "job_blocked"):
            served(scene, patch)
        if j is not None:
            patch.setattr(_room.Room, "_leave", second_cut(cutter, j))
        try:
            answer = cutter.run(lambda: call(scene))
            cut = False
        except Cut:
            pass
        except QueueFull:
            cut = False
    try:
        scheduler = scene.scheduler
        mine = [task for task in scheduler.tasks() if task not in scene.held]
        if scene.took:
            scheduler._engine.free_slot()
        if not cut and answer is not None and operation.startswith(("served", "many", "drop")):
            tasks = answer if isinstance(answer, list) else [answer]
            assert mine == [task for task in tasks if task.state == TaskState.QUEUED]
        check_left_behind(scheduler, 2)
    except AssertionError as error:
        raise AssertionError(f"cut at {cutter.where}: {error}") from None
    return cutter.where, len(mine) if cut else 0


def second_cut(cutter, j):
    """A ``Room._leave`` whose first call after a cut is cut again."""
    leave = _room.Room._leave
    again = [j]

    def left(room, engine, waiter):
        if cutter.where and again:
            cutter.resume(again.pop())
        leave(room, engine, waiter)

    return left


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_interrupt_anywhere_leaves_the_capacity_exact(engine, operation, monkeypatch):
    k = 0
    while True:
        where, left = attempt(engine, operation, monkeypatch, k)
        if not where:
            break
        assert left == 0, where  # what was cut short has left no task in the queue
        k += 1
    assert k > 2, "nothing was interrupted"


@pytest.mark.parametrize("operation", ["served", "timed_out", "job_blocked", "map_in_line"])
def test_a_second_interrupt_while_it_is_taken_back(engine, operation, monkeypatch):
    # Whatever the first one struck, at each place of leaving the line.
    k = 0
    most = 0
    while True:
        j = 0
        while True:
            where, _ = attempt(engine, operation, monkeypatch, k, j)
            if len(where) < 2:
                break
            j += 1
        most = max(most, j)
        if not where:
            break
        k += 1 if most == j else 7  # each place of leaving once, then samples
    assert most > 10, "no second interrupt struck"


def test_an_interrupt_of_whoever_makes_room_loses_no_wake_up(engine):
    # The engine goes on with what was cut short; what it was is raised when all is told.
    k = 0
    while True:
        scene = Scene(engine, overload.Block())
        waiting = blocked(scene.scheduler, scene.scheduler.submit, nothing)
        cutter = Cutter(k)
        try:
            cutter.run(scene.held[0].cancel)
        except Cut:
            pass
        assert waiting.result().state == TaskState.QUEUED, cutter.where
        check_left_behind(scene.scheduler, 2)
        if not cutter.where:
            break
        k += 1
    assert k > 5


def test_an_interrupt_of_the_first_in_line_loses_no_wake_up_of_the_next(engine, monkeypatch):
    # Two places get free at once; the first in line is woken, and cut short wherever it is.
    k = 0
    while True:
        scene = Scene(engine, overload.Block())
        scheduler = scene.scheduler
        with monkeypatch.context() as patch:
            acquire = _room.acquire

            def wake_and_acquire(lock, limit_s, scene=scene, acquire=acquire):
                if not scene.others:
                    scene.others.append(blocked(scene.scheduler, scene.scheduler.submit, nothing))
                    for task in scene.held:
                        scene.by_another_thread(task.cancel)
                return acquire(lock, limit_s)

            def only_here(lock, limit_s, wake=wake_and_acquire, acquire=acquire):
                here = threading.current_thread() is threading.main_thread()
                return (wake if here else acquire)(lock, limit_s)

            patch.setattr(_room, "acquire", only_here)
            cutter = Cutter(k)
            try:
                cutter.run(partial(submits, scene))
            except Cut:
                pass
        if scene.others:
            assert scene.others[0].result().state == TaskState.QUEUED, cutter.where
        assert in_line(scheduler) == 0
        check_left_behind(scheduler, 2)
        if not cutter.where:
            break
        k += 1
    assert k > 30
