"""``wrap=``: user callables around bodies, the outermost first, seen by every kind of worker."""

import gc
import logging
import multiprocessing
import threading
import traceback
import weakref
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import duepool
from duepool import CancelRequested, LoggingWrapper, Task, TaskView
from duepool.executors import InlineExecutor

from .support import CANCELLED, FAILED, SOON, SUCCEEDED, S, nothing

SPAWN = multiprocessing.get_context("spawn")


class Recorder:
    """A wrapper that records what it sees."""

    def __init__(self, name, seen):
        self.name = name
        self.seen = seen

    def __call__(self, task, call):
        self.seen.append((self.name, "in", task.id, task.state.name))
        try:
            return call()
        finally:
            self.seen.append((self.name, "out", task.id, task.state.name))


def test_the_first_is_the_outermost_and_each_sees_the_task(make):
    seen = []
    scheduler = make(0, wrap=[Recorder("a", seen), Recorder("b", seen)])
    task = scheduler.with_options(name="n").submit(lambda: seen.append("body") or 7)
    scheduler.tick()
    assert task.result(0) == 7
    assert seen == [
        ("a", "in", 1, "RUNNING"),
        ("b", "in", 1, "RUNNING"),
        "body",
        ("b", "out", 1, "RUNNING"),
        ("a", "out", 1, "RUNNING"),
    ]


def test_every_kind_of_worker_sees_them(make, new_gate):
    def threads_of(scheduler, **options):
        threads.clear()
        body = scheduler.with_options(**options).submit if options else scheduler.submit
        task = body(threading.get_ident)
        if not scheduler._engine.max_workers:
            scheduler.tick()
        ran_on = task.result(SOON)
        assert threads == [(ran_on, task)]
        return ran_on

    threads = []

    def wrapper(task, call):
        threads.append((threading.get_ident(), task))
        return call()

    me = threading.get_ident()
    with ThreadPoolExecutor(1) as pool:
        for options in ({}, {"timeout": 60, "interrupt": True, "start_by": 60}):
            assert threads_of(make(1, wrap=[wrapper]), **options) != me
            assert threads_of(make(0, wrap=[wrapper]), **options) == me
            assert threads_of(make(executor=pool, wrap=[wrapper]), **options) != me
            assert threads_of(make(0, executor=InlineExecutor(), wrap=[wrapper]), **options) == me
    busy = new_gate()
    here = make(1, wrap=[wrapper], capacity=1, overload="caller_runs")
    here.submit(busy)
    busy.wait_entered()
    here.submit(nothing)
    assert threads_of(here) == me


def _view_of_the_task(task, call):
    return type(task), task.id, task.name, task.state.name, call()


def test_in_another_process_it_sees_a_view_of_the_task(make):
    with ProcessPoolExecutor(1, SPAWN) as pool:
        scheduler = make(executor=pool, wrap=[_view_of_the_task])
        task = scheduler.with_options(name="far", interrupt=True, timeout=60).submit(abs, -3)
        assert task.result(SOON) == (TaskView, 1, "far", "RUNNING", 3)


def test_what_a_wrapper_returns_or_raises_is_the_outcome(make):
    error = ValueError("from the wrapper")

    def change(task, call):
        value = call()
        if value == "fail":
            raise error
        return [value]

    scheduler = make(0, wrap=[change])
    good, bad = scheduler.submit(str, "good"), scheduler.submit(str, "fail")
    scheduler.tick()
    assert good.result(0) == ["good"]
    assert bad.exception(0) is error


def test_a_wrapper_may_call_again_or_not_at_all(make):
    ran = []

    def retry(task, call):
        try:
            return call()
        except OSError:
            return call()

    def refuse(task, call):
        return "refused"

    def fail_once(*args, key):
        ran.append((args, key))
        if len(ran) == 1:
            raise OSError
        return "second"

    again, never = make(0, wrap=[retry]), make(0, wrap=[refuse])
    first, second = again.submit(fail_once, 1, 2, key=3), never.submit(ran.append, "never")
    again.tick()
    never.tick()
    assert (first.result(0), second.result(0)) == ("second", "refused")
    assert ran == [((1, 2), 3)] * 2


def test_wrappers_run_in_the_body_with_its_context_and_limits(make, clock):
    def wrapper(task, call):
        assert duepool.current_task() is task
        left = duepool.time_left()
        clock.advance(2)
        return left, call()

    scheduler = make(0, clock=clock, wrap=[wrapper])
    task = scheduler.with_options(timeout=5).submit(duepool.time_left)
    scheduler.tick()
    assert task.result(0) == (5.0, 3.0)


def test_a_run_that_is_too_late_is_not_seen_by_them(make, clock):
    seen = []
    scheduler = make(0, clock=clock, wrap=[Recorder("w", seen)])
    scheduler.submit(clock.advance, 5)
    task = scheduler.with_options(start_by=5).submit(nothing)
    scheduler.tick()
    assert task.cancel_reason == "start_by"
    assert {number for _, _, number, _ in seen} == {1}


def test_nothing_of_the_task_is_kept(make):
    class Thing:
        pass

    def fail(thing):
        raise ValueError

    scheduler = make(1, wrap=[lambda task, call: call(), LoggingWrapper()])
    gc.disable()
    try:
        for options in ({}, {"timeout": 60}, {"interrupt": True}):
            thing = Thing()
            gone = weakref.ref(thing)
            submit = scheduler.with_options(**options).submit
            submit(id, thing).result(SOON)
            del thing
            scheduler.submit(nothing).result(SOON)
            assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("wrap", [[], [lambda task, call: call()], [LoggingWrapper()]])
@pytest.mark.parametrize(
    "options",
    [{"name": "plain"}, {"timeout": 60}, {"interrupt": True}, {"start_by": 60, "timeout": 60}],
)
def test_an_exception_that_is_kept_keeps_no_task(make, options, wrap):
    scheduler = make(0, wrap=wrap)
    gc.collect()
    gc.disable()
    try:
        task = scheduler.with_options(**options).submit(failing)
        scheduler.tick()
        error = task.exception(0)
        gone = weakref.ref(task)
        del task
        # Its own frames lead to nothing of ours that holds it; a wrapper of the user's does.
        if wrap and not isinstance(wrap[0], LoggingWrapper):
            traceback.clear_frames(error.__traceback__)
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("bad", [5, "ab", [None], [print, "x"], {"a": 1}])
def test_what_is_no_wrapper_is_refused(engine, bad):
    with pytest.raises(TypeError, match="wrap"):
        duepool.Scheduler(0, engine=engine, wrap=bad)


# -- tracebacks ----------------------------------------------------------------------------------


def frames_of(task):
    try:
        task.result(SOON)
    except BaseException as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    raise AssertionError("it did not fail")


def failing():
    raise ValueError("as it should")


@pytest.mark.parametrize(
    "options",
    [
        {"name": "plain"},
        {"timeout": 60},
        {"start_by": 60},
        {"interrupt": True},
        {"timeout": 60, "start_by": 60, "interrupt": True, "inherit": True},
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_c21_a_traceback_begins_with_the_body_and_never_grows(make, workers, options):
    scheduler = make(workers)
    task = scheduler.with_options(**options).submit(failing)
    if not workers:
        scheduler.tick()
    looks = [frames_of(task) for _ in range(100)]
    # Ours is the caller of result() and result() itself; what follows is the body's.
    assert looks[0][-1:] == ["failing"]
    assert looks[0][:-1] == ["frames_of", "result"]
    assert all(look == looks[0] for look in looks)
    error = task.exception()
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["failing"]


def test_with_wrappers_it_begins_with_the_outermost(make):
    def outer(task, call):
        return call()

    def inner(task, call):
        return call()

    scheduler = make(1, wrap=[outer, inner])
    for options in ({}, {"timeout": 60}, {"interrupt": True}):
        task = scheduler.with_options(**options).submit(failing)
        assert frames_of(task) == ["frames_of", "result", "outer", "inner", "failing"]


def test_the_cause_of_a_cancelled_one_begins_with_the_body_too(make, clock):
    scheduler = make(0, clock=clock)

    def late():
        clock.advance(5)
        raise ValueError

    task = scheduler.with_options(timeout=5).submit(late)
    scheduler.tick()
    with pytest.raises(CancelledError) as caught:
        task.result(0)
    cause = caught.value.__cause__
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["late"]


def test_a_body_in_c_has_what_there_is(make):
    scheduler = make(1)
    task = scheduler.with_options(timeout=60).submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        task.result(SOON)


# -- LoggingWrapper ------------------------------------------------------------------------------


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


def lines(log):
    return [(record.name, record.levelname, record.getMessage()) for record in log.records]


def test_logging_says_who_when_and_how(make, clock, log):
    scheduler = make(0, clock=clock, wrap=[LoggingWrapper()])
    scheduler.submit(nothing)
    scheduler.with_options(name="named").submit(failing).add_done_callback(Task.exception)
    stops = scheduler.with_options(timeout=5)

    def answers():
        clock.advance(5)
        duepool.checkpoint()

    stops.submit(answers)
    stops.submit(lambda: clock.advance(5))
    while scheduler.tick():
        pass
    found = lines(log)
    assert {(name, level) for name, level, _ in found} == {("duepool.tasks", "INFO")}
    texts = [text.split(" after ")[0] for _, _, text in found]
    assert texts == [
        "task 1 started",
        "task 1 returned",
        "task 2 'named' started",
        "task 2 'named' raised ValueError",
        "task 3 started",
        "task 3 stopped when asked (timeout)",
        "task 4 started",
        "task 4 returned, asked to stop,",
    ]
    spent = [text.split(" after ")[1] for _, _, text in found if " after " in text]
    assert all(0 <= float(text.removesuffix(" s")) < SOON for text in spent)
    assert len(spent) == 4


def test_logging_goes_where_and_at_the_level_it_is_told(make, log):
    mine = logging.getLogger("my.jobs")
    for logger in (mine, "my.jobs", logging.LoggerAdapter(mine)):
        scheduler = make(0, wrap=[LoggingWrapper(logger=logger, level=logging.DEBUG)])
        scheduler.submit(nothing)
        scheduler.tick()
    assert {line[:2] for line in lines(log)} == {("my.jobs", "DEBUG")}
    assert len(log.records) == 6


def test_logging_swallows_nothing_and_breaks_nothing(make):
    class Broken(logging.Handler):
        def handle(self, record):
            raise OSError("the disk is full")

    logger = logging.getLogger("broken.log")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = Broken()
    logger.addHandler(handler)
    try:
        scheduler = make(1, wrap=[LoggingWrapper("broken.log")])
        assert scheduler.submit(int, "7").result(SOON) == 7
        for error in (ValueError("v"), SystemExit(3), KeyboardInterrupt(), CancelRequested("c")):

            def body(error=error):
                raise error

            task = scheduler.submit(body)
            assert task.exception(SOON) is error
            assert task.state == FAILED
    finally:
        logger.removeHandler(handler)


def test_logging_in_another_process_still_runs_the_body(make):
    with ProcessPoolExecutor(1, SPAWN) as pool:
        scheduler = make(executor=pool, wrap=[LoggingWrapper()])
        assert scheduler.submit(abs, -3).result(SOON) == 3


def test_logging_is_asked_for_something_sensible():
    for bad in (5, None, print):
        with pytest.raises(TypeError, match="logger"):
            LoggingWrapper(bad)
    for bad in ("INFO", 1.5, True, None):
        with pytest.raises(TypeError, match="level"):
            LoggingWrapper(level=bad)
    assert repr(LoggingWrapper("a", logging.DEBUG)) == "LoggingWrapper('a', DEBUG)"


def test_states_and_times_are_as_without_wrappers(make, clock):
    scheduler = make(0, clock=clock, wrap=[LoggingWrapper()])
    task = scheduler.submit(clock.advance, 3)
    gone = scheduler.submit(nothing)
    gone.cancel()
    scheduler.tick()
    view = scheduler.view(task.id)
    assert (view.state, view.started_ns, view.finished_ns) == (SUCCEEDED, 0, 3 * S)
    assert gone.state == CANCELLED
