"""C20, C21: exceptions of every kind, and the traceback that does not grow."""

import asyncio
import concurrent.futures
import os
import traceback

import pytest
from contract.support import FAILED, SUCCEEDED, Aside, child, nothing

from . import size

LOOKS = 100
ROUNDS = size(200, 2_000)


class Bare(BaseException):
    pass


class Falsy(Exception):
    def __bool__(self):
        return False

    def __len__(self):
        return 0


class Unequal(Exception):
    """Raises whenever it is compared or asked for its truth value."""

    def __bool__(self):
        raise RuntimeError("asked for its truth value")

    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = None  # type: ignore[assignment]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("asked for its text")

    __repr__ = __str__


class Slotted(Exception):
    """Takes no new attribute but ``__traceback__`` and its like."""

    def __setattr__(self, name, value):
        raise AttributeError(name)


UNUSUAL = {
    "SystemExit": lambda: SystemExit(3),
    "SystemExit of None": lambda: SystemExit(),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "GeneratorExit": lambda: GeneratorExit(),
    "BaseException": lambda: Bare("bare"),
    "StopIteration": lambda: StopIteration(5),
    "StopAsyncIteration": lambda: StopAsyncIteration(5),
    "asyncio.CancelledError": lambda: asyncio.CancelledError("not by us"),
    "futures.CancelledError": lambda: concurrent.futures.CancelledError("not by us"),
    "TimeoutError": lambda: TimeoutError("not by us"),
    "group": lambda: BaseExceptionGroup("several", [SystemExit(1), ValueError()]),
    "falsy": lambda: Falsy(),
    "unequal": lambda: Unequal(),
    "unprintable": lambda: Unprintable(),
    "slotted": lambda: Slotted(),
    "MemoryError": lambda: MemoryError(),
    "RecursionError": lambda: RecursionError("deep"),
}


def fail(error):
    raise error


async def awaited(task):
    try:
        return await task
    except BaseException as error:
        return error


def on_a_loop(task):
    """What awaiting ``task`` gives, on an event loop of another thread, with a deadline."""

    def run():
        async def main():
            # The exception is returned, not raised: SystemExit would leave the loop itself.
            return await asyncio.wait_for(awaited(task), 1)

        return asyncio.run(main())

    return Aside(run).result()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_c20_any_exception_ends_in_its_own_task_only(make, gate, kind, when):
    error = UNUSUAL[kind]()
    scheduler = make(1)
    if when == "after":
        gate.release.set()
    scheduler.submit(gate)
    task = scheduler.submit(fail, error)
    following = scheduler.submit(lambda: "lives")
    if when == "before":
        looking = Aside(on_a_loop, task)
        waiting = Aside(task.exception)
        gate.release.set()
        seen = looking.result()
        assert waiting.result() is error
    assert following.result(30) == "lives"
    assert task.state == FAILED and task.done() and not task.cancelled()
    assert task.exception() is error
    try:
        task.result()
    except BaseException as caught:
        assert caught is error
    else:
        pytest.fail("result() raised nothing")
    if when == "after":
        seen = on_a_loop(task)
    if kind == "StopIteration":
        assert type(seen) is RuntimeError
        assert seen.__cause__ is error and error.value == 5
    else:
        assert seen is error
    assert following.state == SUCCEEDED


@pytest.mark.parametrize("kind", UNUSUAL)
def test_c20_in_manual_mode_too(make, kind):
    error = UNUSUAL[kind]()
    scheduler = make(0)
    task = scheduler.submit(fail, error)
    following = scheduler.submit(nothing)
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        with pytest.raises(type(error)) as caught:
            scheduler.tick()
        assert caught.value is error
        assert scheduler.tick() == 1
    else:
        assert scheduler.tick() == 2
    assert task.state == FAILED and task.exception() is error
    assert following.state == SUCCEEDED


class Shapes:
    def generator(self):
        return next(iter(()))

    def returned(self):
        return ValueError("as a value")

    def reraised(self):
        try:
            raise KeyError("first")
        except KeyError as error:
            raise LookupError("second") from error

    def from_del(self):
        class Dying:
            def __del__(self):
                try:
                    raise SystemExit(9)
                except SystemExit:
                    pass

        Dying()
        return "lives"


def test_c20_neighbours_of_the_unusual_kinds(make):
    scheduler, shapes = make(1), Shapes()
    with pytest.raises(StopIteration):
        scheduler.submit(shapes.generator).result(30)
    value = scheduler.submit(shapes.returned).result(30)
    assert type(value) is ValueError
    with pytest.raises(LookupError) as caught:
        scheduler.submit(shapes.reraised).result(30)
    assert isinstance(caught.value.__cause__, KeyError)
    assert scheduler.submit(shapes.from_del).result(30) == "lives"
    # A class as the body, whose constructor leaves.
    task = scheduler.submit(type("Leaver", (), {"__init__": lambda self: fail(SystemExit(1))}))
    assert isinstance(task.exception(30), SystemExit)
    assert scheduler.submit(os.getpid).result(30) == os.getpid()


def test_c20_the_process_outlives_every_kind(engine):
    script = """
        import sys, duepool
        class Bare(BaseException): pass
        def fail(error): raise error
        kinds = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Bare(), StopIteration(5)]
        with duepool.Scheduler(1) as scheduler:
            for error in kinds:
                task = scheduler.submit(fail, error)
                assert task.exception() is error
                assert scheduler.submit(abs, -4).result() == 4
        print("alive")
    """
    assert child(script, engine) == "alive\n"


def test_c20_sys_exit_and_exit_of_a_body_leave_nothing(engine):
    script = """
        import sys, _thread, duepool
        with duepool.Scheduler(2) as scheduler:
            tasks = [scheduler.submit(sys.exit, code) for code in (0, 1, "text", None)]
            tasks.append(scheduler.submit(_thread.exit))
            print([type(task.exception()).__name__ for task in tasks])
            print(scheduler.submit(abs, -4).result())
    """
    assert child(script, engine) == f"{['SystemExit'] * 5}\n4\n"


def test_c20_one_worker_takes_hundreds_of_them(make):
    scheduler = make(1)
    makers = list(UNUSUAL.values())
    tasks = [scheduler.submit(fail, makers[n % len(makers)]()) for n in range(ROUNDS)]
    assert scheduler.submit(lambda: "lives").result(30) == "lives"
    assert {task.state for task in tasks} == {FAILED}
    assert all(task.exception(0) is not None for task in tasks)
    assert scheduler.stats().failed == ROUNDS


def body_of_the_case():
    raise ArithmeticError("of the body")


def frames(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def looked_at(task, how):
    try:
        if how == "result":
            task.result()
        elif how == "timeout":
            task.result(1)
        elif how == "exception":
            raise task.exception()
        elif how == "await":
            asyncio.run(asyncio.wait_for(_plain(task), 30))
        elif how == "wrap":
            asyncio.run(_wrapped(task))
        else:
            next(concurrent.futures.as_completed([task])).result()
    except ArithmeticError as error:
        return frames(error)
    raise AssertionError("nothing was raised")


async def _plain(task):
    return await task


async def _wrapped(task):
    return await asyncio.wrap_future(task)


@pytest.mark.parametrize("how", ["result", "timeout", "exception", "as_completed"])
def test_c21_the_traceback_never_grows(make, how):
    task = make(1).submit(body_of_the_case)
    counts = []
    for _ in range(LOOKS):
        names = looked_at(task, how)
        assert names.count("body_of_the_case") == 1
        counts.append(len(names))
    assert counts[1:] == [counts[1]] * (LOOKS - 1)
    assert counts[0] <= counts[1]


@pytest.mark.parametrize("how", ["await", "wrap"])
def test_c21_nor_when_it_is_awaited(make, how):
    task = make(1).submit(body_of_the_case)
    counts = []
    for _ in range(10):
        names = looked_at(task, how)
        assert names.count("body_of_the_case") == 1
        counts.append(len(names))
    assert counts[1:] == [counts[1]] * 9


def test_c21_nor_when_the_ways_are_mixed(make):
    task = make(1).submit(body_of_the_case)
    ways = ("result", "await", "exception", "as_completed", "wrap", "timeout")
    first = {how: len(looked_at(task, how)) for how in ways}
    for _ in range(5):
        for how in ways:
            names = looked_at(task, how)
            assert len(names) == first[how]
            assert names.count("body_of_the_case") == 1


def test_c21_in_manual_mode_too(make):
    scheduler = make(0)
    task = scheduler.submit(body_of_the_case)
    scheduler.tick()
    counts = {len(looked_at(task, "result")) for _ in range(LOOKS)}
    assert len(counts) == 1


def test_c21_asking_from_many_threads_keeps_the_bodys_frame(make):
    task = make(1).submit(body_of_the_case)
    asking = [Aside(lambda: [looked_at(task, "result") for _ in range(LOOKS)]) for _ in range(4)]
    for ask in asking:
        for names in ask.result():
            assert "body_of_the_case" in names


def test_c21_one_exception_of_two_tasks(make):
    scheduler, error = make(1), ArithmeticError("shared")
    tasks = [scheduler.submit(fail, error) for _ in range(2)]
    for task in tasks:
        assert task.exception(30) is error
    counts = []
    for _ in range(10):
        counts.append(tuple(len(looked_at(task, "result")) for task in tasks))
    assert len(set(counts)) == 1


def test_c21_the_cause_of_a_cancellation_does_not_grow_either(make, gate):
    scheduler = make(1)

    def body():
        gate()
        raise ArithmeticError("after the request")

    task = scheduler.submit(body)
    gate.wait_entered()
    assert task.cancel()
    gate.release.set()
    counts = set()
    for _ in range(LOOKS):
        with pytest.raises(concurrent.futures.CancelledError) as caught:
            task.result(30)
        assert isinstance(caught.value.__cause__, ArithmeticError)
        names = frames(caught.value.__cause__)
        assert names[-1] == "body"
        counts.add((len(frames(caught.value)), len(names)))
    assert len(counts) == 1
