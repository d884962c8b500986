"""C38-C40: what an idle worker, a context and the history keep alive."""

import contextvars
import gc
import logging
import weakref

import pytest
from contract.support import SUCCEEDED, Aside, child, nothing, wait_until

import duepool

from . import size

TASKS = {"cython": size(100_000, 1_000_000), "python": size(8_000, 300_000)}
HISTORY = 100

variable: contextvars.ContextVar = contextvars.ContextVar("variable")


class Thing:
    """Something that a weak reference can point at."""

    def method(self, *args, **kwargs):
        return Thing()


class Lost(Exception):
    pass


@pytest.fixture
def no_collector():
    """Only reference counts free anything during the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fail_with(thing):
    inner = Thing()
    error = Lost()
    error.things = (thing, inner)
    try:
        raise error
    finally:
        del error


def dead(references):
    wait_until(lambda: not any(ref() is not None for ref in references), "freed", limit_s=1)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("how", ["argument", "keyword", "method", "closure", "default", "many"])
def test_c38_an_idle_worker_keeps_nothing(make, no_collector, workers, how):
    scheduler = make(workers)
    thing = Thing()
    if how == "closure":

        def function(thing=None, /):
            return Thing()

        function.thing = thing
        task = scheduler.submit(function)
    elif how == "default":

        def function(held=thing):
            return Thing()

        task = scheduler.submit(function)
    else:

        def function(*args, **kwargs):
            return Thing()

        if how == "argument":
            task = scheduler.submit(function, thing)
        elif how == "keyword":
            task = scheduler.submit(function, held=thing)
        elif how == "method":
            task = scheduler.submit(thing.method)
        else:
            (task,) = scheduler.submit_many([(function, thing)])
    if workers == 0:
        scheduler.tick()
    references = [weakref.ref(thing), weakref.ref(function), weakref.ref(task.result(30))]
    del thing, function, task
    dead(references)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ends", ["returns", "raises", "raises unseen", "asked"])
def test_c38_however_the_task_ended(make, no_collector, monkeypatch, workers, ends):
    told = []

    class Forgetful(logging.Handler):
        """Keeps no record: one would keep the exception."""

        def emit(self, record):
            told.append(record.getMessage())

    logger = logging.getLogger("duepool")
    monkeypatch.setattr(logger, "handlers", [Forgetful()])
    monkeypatch.setattr(logger, "propagate", False)
    scheduler = make(workers)
    thing, callback = Thing(), lambda t: None
    if ends == "asked":

        def body(thing):
            duepool.current_task().cancel()
            raise Lost(thing)

        task = scheduler.submit(body, thing)
    elif ends == "returns":
        task = scheduler.submit(thing.method, thing)
    else:
        task = scheduler.submit(fail_with, thing)
    task.add_done_callback(callback)
    if workers == 0:
        scheduler.tick()
    wait_until(task.done, "the end of the task")
    references = [weakref.ref(thing), weakref.ref(callback), weakref.ref(task)]
    if ends == "raises":
        references.append(weakref.ref(task.exception()))
    elif ends == "asked":
        with pytest.raises(duepool.CancelledError) as caught:
            task.result()
        references.append(weakref.ref(caught.value.__cause__))
        del caught
    del thing, callback, task
    dead(references)
    assert len(told) == (ends == "raises unseen")


def test_c38_the_exception_that_result_raised_holds_no_task(make, no_collector):
    """The frames of ``result()`` are in the traceback; they must not close a cycle."""
    scheduler = make(1)
    task = scheduler.submit(fail_with, Thing())
    try:
        task.result(30)
    except Lost as error:
        references = [weakref.ref(thing) for thing in (*error.things, error, task)]
    del task
    dead(references)


def test_c38_a_waiting_worker_keeps_nothing_while_later_tasks_are_queued(make, no_collector):
    scheduler = make(2)
    later = scheduler.submit_after(3600, nothing)
    thing = Thing()
    task = scheduler.submit_after(0.01, Thing.method, thing)
    references = [weakref.ref(thing), weakref.ref(task.result(30)), weakref.ref(task)]
    del thing, task
    dead(references)
    assert later.cancel()


def test_c38_a_handle_without_arguments_keeps_only_the_result(make, no_collector):
    scheduler = make(1)
    thing = Thing()
    task = scheduler.submit(lambda thing: Thing(), thing)
    result = weakref.ref(task.result(30))
    references = [weakref.ref(thing)]
    del thing
    dead(references)
    assert result() is task.result()
    del task
    dead([result])


def test_c39_each_task_runs_in_the_context_of_its_submission(make, gate):
    """Without the recurring half of the case (a context value and a cancelled job)."""
    scheduler = make(1)

    def read_and_set(value):
        seen = variable.get("unset")
        variable.set(value)
        return seen

    def main():
        scheduler.submit(gate)
        variable.set("A")
        first = scheduler.submit(read_and_set, "X")
        variable.set("B")
        second = scheduler.submit(variable.get, "unset")
        later = scheduler.submit_after(0.001, read_and_set, "Y")
        many = scheduler.submit_many([(variable.get, "unset")] * 2)
        named = scheduler.with_options(name="n").submit(variable.get, "unset")
        variable.set("C")
        gate.release.set()
        tasks = (first, second, later, *many, named)
        return [task.result(30) for task in tasks], variable.get()

    seen, left = contextvars.copy_context().run(main)
    assert seen == ["A", "B", "B", "B", "B", "B"]
    assert left == "C"
    assert variable.get("unset") == "unset"
    empty = contextvars.Context().run(scheduler.submit, variable.get, "unset")
    assert empty.result(30) == "unset"


def test_c39_in_manual_mode_the_ticking_thread_keeps_its_own(make):
    scheduler = make(0)

    def submit():
        variable.set("A")
        task = scheduler.submit(lambda: (variable.get(), variable.set("X")) and variable.get())
        variable.set("B")
        return task

    tasks = [contextvars.copy_context().run(submit), scheduler.submit(variable.get, "unset")]

    def tick():
        variable.set("ticker")
        scheduler.tick()
        return variable.get()

    assert contextvars.copy_context().run(tick) == "ticker"
    assert tasks[0].result() == "X" and tasks[1].result() == "unset"


@pytest.mark.parametrize("leak", ["set", "raise", "cancelled"])
def test_c39_nothing_leaks_into_the_next_task(make, leak):
    scheduler = make(1)

    def body():
        variable.set("leaked")
        if leak == "raise":
            raise SystemExit
        if leak == "cancelled":
            duepool.current_task().cancel()
            duepool.checkpoint()

    first = scheduler.submit(body)
    second = scheduler.submit(variable.get, "unset")
    assert second.result(30) == "unset"
    assert first.done()
    if leak == "raise":
        first.exception()


def test_c39_none_runs_in_the_workers_own_context(make):
    scheduler = make(1, context="none")

    def submit():
        variable.set("A")
        return scheduler.submit(variable.get, "unset")

    assert contextvars.copy_context().run(submit).result(30) == "unset"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ends", ["returns", "raises", "queued", "asked", "submitted inside"])
def test_c39_a_context_dies_with_its_task(make, no_collector, workers, ends):
    scheduler = make(workers)
    references: list = []

    def raising():
        raise Lost

    def asked():
        duepool.current_task().cancel()

    def inner():
        """Submits one more, whose copy of the context holds the value too."""
        references.append(weakref.ref(scheduler.submit(nothing)))

    def submit():
        value = Thing()
        references.append(weakref.ref(value))
        variable.set(value)
        if ends == "queued":
            return scheduler.submit_after(3600, nothing)
        bodies = {"returns": nothing, "raises": raising, "asked": asked}
        return scheduler.submit(bodies.get(ends, inner))

    task = contextvars.copy_context().run(submit)
    if ends == "queued":
        assert references[0]() is not None
        task.cancel()
    elif workers == 0:
        scheduler.tick()
        scheduler.tick()
    wait_until(task.done, "the end of the task")
    if ends == "raises":
        assert isinstance(task.exception(), Lost)
    dead(references)  # while the handle still lives


def test_c39_the_value_a_body_sets_dies_with_it(make, no_collector):
    references = []

    def body():
        value = Thing()
        references.append(weakref.ref(value))
        variable.set(value)

    task = make(1).submit(body)
    task.result(30)
    dead(references)
    assert task.state == SUCCEEDED


@pytest.mark.parametrize("handles", ["dropped", "submit_many"])
def test_c40_the_history_is_bounded_and_keeps_no_argument(engine, handles):
    """Without the recurring half of the case (runs of one job)."""
    script = f"""
        import gc, resource, sys, time, duepool
        class Thing:
            __slots__ = ("fill",)
            alive = 0
            def __init__(self):
                self.fill = bytes(200)
                Thing.alive += 1
            def __del__(self):
                Thing.alive -= 1
        def nothing(thing):
            return thing
        def resident():
            try:
                with open("/proc/self/statm") as file:
                    return int(file.read().split()[1]) * resource.getpagesize()
            except OSError:
                unit = 1 if sys.platform == "darwin" else 1024
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        scheduler = duepool.Scheduler(1, history={HISTORY})
        def rounds(count):
            # A backlog of at most 1,000, so that what is measured is what has ended.
            for _ in range(count // 1000):
                if {handles == "submit_many"}:
                    last = scheduler.submit_many([(nothing, Thing()) for _ in range(1000)])[-1]
                else:
                    for _ in range(999):
                        scheduler.submit(nothing, Thing())
                    last = scheduler.submit(nothing, Thing())
                last.result()
                del last
            return count // 1000 * 1000
        done = rounds(5000)
        gc.collect()
        before = resident()
        done += rounds({TASKS[engine]})
        grown = resident() - before
        end = time.monotonic() + 5
        while Thing.alive and time.monotonic() < end:
            time.sleep(0.01)
        assert Thing.alive == 0, Thing.alive
        known = 0
        for number in range(1, done + 1):
            try:
                scheduler.view(number)
                known += 1
            except duepool.UnknownTask:
                pass
        assert known == {HISTORY}, known
        assert scheduler.stats().succeeded == done
        assert scheduler.tasks() == []
        print(grown)
    """
    assert int(child(script, engine)) < 20_000_000


@pytest.mark.parametrize("history", [0, 1, 7])
def test_c40_the_last_records_are_kept_and_no_more(make, clock, history):
    scheduler = make(0, clock=clock, history=history)
    for _ in range(50):
        scheduler.submit(nothing)
    assert scheduler.tick() == 50
    known = []
    for number in range(1, 51):
        try:
            known.append(scheduler.view(number).id)
        except duepool.UnknownTask:
            pass
    assert known == list(range(51 - history, 51))


def test_c40_failures_and_cancels_leave_records_only(make, no_collector):
    scheduler = make(1, history=1000)
    references = []
    for number in range(60):
        thing = Thing()
        references.append(weakref.ref(thing))
        if number % 2:
            task = scheduler.submit(fail_with, thing)
            assert isinstance(Aside(task.exception).result(), Lost)
        else:
            task = scheduler.submit_after(3600, nothing, thing)
            assert task.cancel()
        del thing, task
    dead(references)
    assert scheduler.view(1).state.name == "CANCELLED" and scheduler.view(60).state.name == "FAILED"
