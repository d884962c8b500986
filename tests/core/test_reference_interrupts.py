"""The reference engine under what Python may run in the middle of it: signal handlers, finalizers.

CPython looks for signals at function entries, after calls of C functions and at backward jumps. A
tracer raises at the k-th such place within the engine, for every k: afterwards the structures must
agree, nothing may run for ever, nobody may go untold, and the scheduler must go on.
"""

import dis
import gc
import sys
import threading
import weakref

import pytest

from duepool import ManualClock, Scheduler, TaskState
from duepool._reference import engine as reference

SOON = 30.0

_CALLS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW"}


class Cut(BaseException):
    """What the signal handler raises."""


class Cutter:
    """Runs a call and raises ``Cut`` at the k-th place where a signal could be served."""

    def __init__(self, k):
        self.left = k
        self.where = None  # where it was raised; None: the call has fewer places
        self._last = {}  # frame -> [last opcode, whether it entered a Python function]

    def run(self, call):
        gc.disable()  # a finalizer would swallow the exception
        sys.settrace(self._entered)
        try:
            call()
        except Cut:
            pass
        finally:
            sys.settrace(None)
            gc.enable()
            self._last.clear()

    def _place(self, frame):
        self.left -= 1
        if self.left == -1:
            code = frame.f_code
            self.where = f"{code.co_name} in {code.co_filename}, line {frame.f_lineno}"
            raise Cut

    def _entered(self, frame, event, arg):
        if frame.f_back in self._last:
            self._last[frame.f_back][1] = True
        if "_reference" not in frame.f_code.co_filename:
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


def check(scheduler, idle=True):
    """The structures agree, as another thread sees them (which needs the lock to be free)."""
    core = scheduler._engine
    seen = []

    def look():
        with core.monitor.lock():
            core.heap.check()
            table = core.table
            running = table.running + table.cancel_requested
            ended = table.succeeded + table.failed + table.cancelled
            seen.append((table.queued, len(core.heap), core.admission.queued))
            seen.append((table.last_id, table.queued + running + ended))
            seen.append((len(table.records()), table.queued + running))
            seen.append((core.blocked, 0))
            if idle:
                seen.append((running, 0))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(SOON)
    assert seen, "the lock was left held"
    for figures in seen:
        assert len(set(figures)) == 1, seen


OPERATIONS = {
    "submit": lambda s, clock, tasks: s.submit(int),
    "submit_many": lambda s, clock, tasks: s.submit_many([int, int, int], 0.5),
    "cancel_the_head": lambda s, clock, tasks: tasks[5].cancel(),
    "cancel_a_leaf": lambda s, clock, tasks: tasks[8].cancel(),
    "reschedule": lambda s, clock, tasks: tasks[0].reschedule(0.1),
    "tick_one": lambda s, clock, tasks: s.tick(),
    "tick_some": lambda s, clock, tasks: (clock.advance(2), s.tick()),
    "cancel_queued": lambda s, clock, tasks: s._engine.cancel_queued(6 * 10**9),
    "close": lambda s, clock, tasks: s._engine.close(0),
    "counts": lambda s, clock, tasks: s.stats(),
    "watch": lambda s, clock, tasks: tasks[0].add_done_callback(print),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_from_a_signal_handler_leaves_no_step_half_done(operation, capsys):
    k = 0
    while True:
        clock = ManualClock()
        scheduler = Scheduler(0, clock=clock, engine="python")
        tasks = [scheduler.submit_after(delay, int) for delay in (5, 1, 3, 2, 4, 0, 9, 8, 7)]
        told = []
        for task in tasks:
            task.add_done_callback(told.append)
        cutter = Cutter(k)
        cutter.run(lambda: OPERATIONS[operation](scheduler, clock, tasks))  # noqa: B023
        if cutter.where is None:
            break
        try:
            check(scheduler)
            assert {task.id for task in told} == {task.id for task in tasks if task.done()}
            assert len(told) == len(set(map(id, told)))
            clock.advance(20)
            scheduler.tick()
            check(scheduler)
            assert len(told) == len(tasks)
            assert not scheduler.tasks()
            if operation != "close":
                assert scheduler.submit(int).state == TaskState.QUEUED
        except BaseException as error:
            error.add_note(f"cut at place {k}: {cutter.where}")
            raise
        finally:
            for task in tasks:
                if task._failure is not None:
                    task._failure.observed = True
        k += 1
    assert k > 5
    capsys.readouterr()


@pytest.mark.parametrize("workers", [0, 1])
def test_c28_whoever_comes_back_while_this_thread_holds_the_lock_is_refused(workers):
    clock = ManualClock()
    scheduler = Scheduler(workers, clock=clock, engine="python")
    task = scheduler.submit_after(5, int)
    core = scheduler._engine
    calls = [
        lambda: scheduler.submit(int),
        lambda: scheduler.submit_many([int]),
        lambda: task.cancel(),
        lambda: task.reschedule(1),
        lambda: task.result(),
        lambda: task.add_done_callback(print),
        lambda: scheduler.stats(),
        lambda: scheduler.view(1),
        lambda: scheduler.tasks(),
        lambda: scheduler.shutdown(wait=False),
    ]
    if not workers:
        calls.append(scheduler.tick)
    with core.monitor.lock():
        for call in calls:
            with pytest.raises(RuntimeError, match="re-entered"):
                call()
        assert not task.done()
        assert task.state == TaskState.QUEUED
    check(scheduler)
    assert scheduler.stats().admitted == 1
    clock.advance(5)
    if not workers:
        assert scheduler.tick() == 1
    assert task.result(SOON) == 0
    scheduler.shutdown()


def test_a_scheduler_that_dies_under_its_own_lock_still_drains():
    # A garbage collection under the monitor may find the face dead: the workers then close it.
    done = threading.Event()
    scheduler = Scheduler(2, engine="python", clock=(clock := ManualClock()))
    task = scheduler.submit_after(1, done.set)
    core = scheduler._engine
    threads = [t for t in threading.enumerate() if t.name.startswith(scheduler._crew.prefix)]
    assert threads
    with core.monitor.lock():
        del scheduler
        gc.collect()
    dead = weakref.ref(core)
    del core
    clock.advance(1)
    assert done.wait(SOON)
    del task
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    gc.collect()
    assert dead() is None


def test_frames_know_whose_is_newer(monkeypatch):
    monkeypatch.setattr(reference, "other_depth", lambda: 7)
    assert reference.top_mark() is None
    assert reference.frame_depth() == 0
    scheduler = Scheduler(0, engine="python", clock=ManualClock())
    inner = Scheduler(0, engine="python", clock=ManualClock())
    inside = inner.submit(lambda: (reference.frame_depth(), reference.current_task()))
    outside = scheduler.submit(
        lambda: (reference.top_mark(), inner.tick(), reference.current_task())
    )
    assert scheduler.tick() == 1
    assert inside.result() == (2, inside)
    assert outside.result() == (7, 1, outside)
    assert reference.frame_depth() == 0
    assert reference.current_task() is None
