"""An exception at every place where the interpreter could raise one into a thread.

CPython looks for signals, and for what was thrown into a thread, at function entries, after calls
of C functions and at backward jumps. A tracer raises at the k-th such place, for every k.
"""

import dis
import gc
import sys

import pytest

import duepool
from duepool import CancelRequested, ManualClock, _guards, _interrupt

from .support import CANCELLED, guards_of

_CALLS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW"}


class Cutter:
    """Raises ``error`` at the k-th place in a module, once ``armed``."""

    def __init__(self, module, k, error, armed=True):
        self._file = module.__file__
        self.left = k
        self.error = error
        self.armed = armed
        self.struck = False
        self._last = {}  # frame -> [last opcode, whether it entered a Python function]

    def run(self, call):
        gc.disable()  # a finalizer would swallow the exception
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # once before, for CPython 3.12
        sys.settrace(self._entered)
        try:
            return call()
        finally:
            sys.settrace(before)
            gc.enable()
            self._last.clear()

    def _place(self):
        if self.armed and not self.struck:
            self.left -= 1
            if self.left < 0:
                self.struck = True
                raise self.error

    def _entered(self, frame, event, arg):
        if frame.f_back in self._last:
            self._last[frame.f_back][1] = True
        if frame.f_code.co_filename != self._file:
            return None
        frame.f_trace = self._opcode  # before the next, for CPython 3.13
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        # A place too, but what a tracer raises here CPython 3.11 may be long in digesting.
        self._last[frame] = ["JUMP_BACKWARD", False]
        return self._opcode

    def _opcode(self, frame, event, arg):
        if event == "opcode":
            name, entered = self._last[frame]
            self._last[frame] = [dis.opname[frame.f_code.co_code[frame.f_lasti]], False]
            if (name in _CALLS and not entered) or name.startswith("JUMP_BACKWARD"):
                self._place()
        return self._opcode


class FakeTask:
    """As much of a task as a section sees."""

    def __init__(self):
        self.section = None

    def _watch_request(self, strike):
        self.section = strike.__self__
        return True


@pytest.mark.parametrize("kind", [CancelRequested, KeyboardInterrupt])
@pytest.mark.parametrize("fails", [False, True])
def test_a_section_is_left_wherever_it_is_struck(kind, fails):
    error = ValueError("the body's own")
    outcomes = set()
    k = 0
    while True:
        task = FakeTask()
        cutter = Cutter(_interrupt, k, kind("thrown"))

        def body(task=task):
            task.section._struck = True  # so that it is taken back
            if fails:
                raise error
            return "whole"

        try:
            outcome = cutter.run(lambda: _interrupt.run(task, body, (), {}))  # noqa: B023
        except BaseException as raised:
            outcome = type(raised)
        outcomes.add(outcome)
        assert _interrupt._here.top is None, k
        if task.section is not None:
            assert task.section.left, k
            assert not task.section._active, k
        if not cutter.struck:
            break
        k += 1
    assert k > 5
    assert outcomes == {kind, ValueError if fails else "whole"}


def test_a_hold_is_kept_or_not_wherever_it_is_struck():
    k = 0
    while True:
        section = _interrupt.Section()
        section._active = True
        _interrupt._here.top = section
        cutter = Cutter(_interrupt, k, CancelRequested("thrown"))
        inside = []
        try:
            with pytest.raises(CancelRequested):

                def held():
                    with _interrupt.Held():
                        inside.append(len(section._wakes))  # noqa: B023

                cutter.run(held)
                raise CancelRequested
        finally:
            _interrupt._here.top = None
        assert inside in ([], [1])
        if not cutter.struck:
            assert section._wakes == []
            break
        k += 1
    assert k > 2


@pytest.mark.parametrize("moves", [1, 2])
def test_no_deadline_is_lost_wherever_a_ctrl_c_strikes(make, moves):
    k = 0
    while True:
        clock = ManualClock()
        scheduler = make(0, clock=clock)
        options = scheduler.with_options(timeout=5, start_by=5)
        cutter = Cutter(_guards, k, KeyboardInterrupt(), armed=False)
        late, caught = [], []

        def body():
            for _ in range(3):
                late.append(options.submit(print, "never"))  # noqa: B023
            cutter.armed = True  # noqa: B023
            for _ in range(moves):
                try:
                    clock.advance(5 / moves)  # noqa: B023
                except KeyboardInterrupt:
                    caught.append(moves)  # noqa: B023
            cutter.armed = False  # noqa: B023
            clock.advance(0)  # noqa: B023  # where it came before the first look

        task = options.submit(body)
        cutter.run(scheduler.tick)
        assert len(caught) == cutter.struck
        assert (task.state, task.cancel_reason) == (CANCELLED, "timeout"), k
        assert [other.cancel_reason for other in late] == ["start_by"] * 3, k
        assert guards_of(scheduler) == 0
        if not cutter.struck:
            break
        k += 1
    assert k > 10
    assert duepool.current_task() is None
