"""``thread_factory=``: the user makes the threads, of every kind that a scheduler has."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import duepool

from .support import SOON, nothing, wait_until


class Factory:
    """Makes threads and remembers them."""

    def __init__(self, **options):
        self.options = options
        self.made = []

    def __call__(self, target, name):
        thread = threading.Thread(target=target, name=name, **self.options)
        self.made.append(thread)
        return thread

    @property
    def names(self):
        return sorted(thread.name for thread in self.made)


class Foreign:
    """A thread that is no ``threading.Thread``: no more than it has to have."""

    def __init__(self, target, name):
        self._target = target
        self._done = threading.Event()
        self.joins = 0

    def start(self):
        import _thread

        _thread.start_new_thread(self._run, ())

    def _run(self):
        try:
            self._target()
        finally:
            self._done.set()

    def join(self, timeout=None):
        self.joins += 1
        self._done.wait(SOON)


@pytest.mark.parametrize("daemon", [True, False])
def test_workers_are_made_by_it_and_named_as_ever(make, daemon):
    factory = Factory(daemon=daemon)
    scheduler = make(2, "poll", thread_factory=factory)
    assert factory.made == []
    for _ in range(3):
        assert scheduler.submit(threading.current_thread).result(SOON) in factory.made
    assert factory.names == ["poll_0", "poll_1"]
    scheduler.shutdown()
    assert not any(thread.is_alive() for thread in factory.made)


def test_so_is_the_thread_of_the_guards(make):
    factory = Factory(daemon=True)
    scheduler = make(1, "poll", thread_factory=factory)
    scheduler.submit(nothing)
    assert factory.names == ["poll_0"]
    scheduler.with_options(timeout=60).submit(nothing).result(SOON)
    assert factory.names == ["poll_0", "poll_guard_0"]
    scheduler.shutdown()
    assert not any(thread.is_alive() for thread in factory.made)


def test_and_the_dispatcher_of_an_executor(make):
    factory = Factory(daemon=True)
    with ThreadPoolExecutor(1) as pool:
        scheduler = make(executor=pool, thread_factory=factory)
        assert scheduler.submit(threading.current_thread).result(SOON) not in factory.made
        assert len(factory.made) == 1
        scheduler.shutdown()


def test_manual_mode_makes_none(make, clock):
    factory = Factory()
    scheduler = make(0, clock=clock, thread_factory=factory)
    scheduler.with_options(timeout=5, start_by=5).submit(nothing)
    scheduler.tick()
    assert factory.made == []


def test_a_thread_of_another_make_will_do(make):
    made = []

    def factory(target, name):
        made.append(Foreign(target, name))
        return made[-1]

    scheduler = make(2, thread_factory=factory)
    scheduler.with_options(timeout=60).submit(nothing).result(SOON)
    # A shutdown from inside never waits for its own thread.
    scheduler.submit(scheduler.shutdown).result(SOON)
    assert scheduler.await_termination(SOON)
    assert len(made) == 3
    assert all(thread._done.is_set() for thread in made)
    assert all(thread.joins for thread in made)


class NoJoin:
    def start(self):
        raise AssertionError("never started")


@pytest.mark.parametrize("given", [None, 5, NoJoin(), "thread"])
@pytest.mark.parametrize("options", [{"name": "plain"}, {"timeout": 60}])
def test_what_is_no_thread_fails_the_submission_which_admits_nothing(make, given, options):
    scheduler = make(1, thread_factory=lambda target, name: given)
    with pytest.raises(TypeError, match="thread_factory"):
        scheduler.with_options(**options).submit(nothing)
    stats = scheduler.stats()
    assert (stats.admitted, stats.queued) == (0, 0)


@pytest.mark.parametrize("options", [{"name": "plain"}, {"timeout": 60}, {"start_by": 60}])
def test_one_that_raises_fails_the_submission_until_it_does_not(make, options):
    class NoMore(RuntimeError):
        pass

    good = Factory(daemon=True)
    fails = [True]

    def factory(target, name):
        if fails[0]:
            raise NoMore(name)
        return good(target, name)

    scheduler = make(1, thread_factory=factory)
    submit = scheduler.with_options(**options).submit
    for _ in range(3):
        with pytest.raises(NoMore):
            submit(nothing)
    assert scheduler.stats().admitted == 0
    fails[0] = False
    submit(nothing).result(SOON)
    assert scheduler.stats().admitted == 1


def test_one_that_cannot_start_fails_the_submission_too(make):
    class Stillborn(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    scheduler = make(1, thread_factory=lambda target, name: Stillborn(target=target, name=name))
    for options in ({}, {"timeout": 60}):
        with pytest.raises(RuntimeError, match="can't start"):
            scheduler.with_options(**options).submit(nothing)
    assert scheduler.stats().admitted == 0
    scheduler.shutdown()


def test_a_guard_that_cannot_start_while_a_worker_lives_fails_only_what_needs_it(make, caplog):
    made = Factory(daemon=True)

    def factory(target, name):
        if "guard" in name:
            raise MemoryError
        return made(target, name)

    scheduler = make(1, thread_factory=factory)
    scheduler.submit(nothing).result(SOON)
    for options in ({"timeout": 60}, {"start_by": 60}):
        with pytest.raises(MemoryError):
            scheduler.with_options(**options).submit(nothing)
        with pytest.raises(MemoryError):
            scheduler.with_options(**options).submit_many([nothing])
    assert scheduler.stats().admitted == 1
    scheduler.submit(nothing).result(SOON)


def test_a_further_worker_that_cannot_start_is_done_without(make, caplog, gate):
    made = []

    def factory(target, name):
        if made:
            raise RuntimeError("no more")
        made.append(threading.Thread(target=target, name=name, daemon=True))
        return made[0]

    scheduler = make(2, thread_factory=factory)
    scheduler.submit(gate)
    gate.wait_entered()
    task = scheduler.submit(nothing)
    gate.release.set()
    task.result(SOON)
    assert "no further worker" in caplog.text


def test_it_must_be_callable(engine):
    with pytest.raises(TypeError, match="thread_factory"):
        duepool.Scheduler(1, engine=engine, thread_factory="thread")


def test_the_initializer_runs_on_workers_only(make):
    ran = []
    scheduler = make(1, "w", lambda: ran.append(threading.current_thread().name))
    scheduler.with_options(timeout=60).submit(nothing).result(SOON)
    wait_until(lambda: ran)
    assert ran == ["w_0"]
