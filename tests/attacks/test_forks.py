"""Forks in bodies and beside workers: the child goes no further, the parent is undisturbed."""

import pytest

from .support import child, forks

pytestmark = forks


@pytest.mark.parametrize("way", ["returns", "raises", "exits"])
def test_a_body_forks_and_its_child_comes_back_from_it_on_a_worker(engine, way):
    # Every queued task must run once only, in the parent; the child's copy of the worker ends.
    out = child(
        engine,
        f"""
        way = {way!r}
        """
        """
        scheduler = Scheduler(1)
        reader, writer = os.pipe()
        gate = threading.Event()
        told = []

        def fork():
            pid = os.fork()
            if pid == 0 and way == "raises":
                raise ValueError
            if pid == 0 and way == "exits":
                sys.exit(0)
            return pid

        def note(number):
            os.write(writer, f"{number} {os.getpid() == parent};".encode())

        parent = os.getpid()
        scheduler.submit(gate.wait, SOON)
        task = scheduler.submit(fork)
        task.add_done_callback(lambda task: note("told"))
        tasks = [scheduler.submit(note, number) for number in range(3)]
        gate.set()
        pid = task.result(SOON)
        for later in tasks:
            later.result(SOON)
        end = time.monotonic() + SOON
        while (status := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, "the child does not end"
            time.sleep(0.001)
        print(os.read(reader, 1000).decode(), status[1])
        """,
    )
    assert out == "told True;0 True;1 True;2 True; 0"


@pytest.mark.parametrize("way", ["returns", "raises"])
def test_a_body_forks_and_its_child_comes_back_from_it_in_tick(engine, way):
    out = child(
        engine,
        f"""
        way = {way!r}
        """
        """
        scheduler = Scheduler(0, clock=ManualClock())
        parent = os.getpid()

        def fork():
            pid = os.fork()
            if pid == 0 and way == "raises":
                raise KeyboardInterrupt
            return pid

        def note(what):
            os.write(1, f"{what} {os.getpid() == parent}\\n".encode())

        task = scheduler.submit(fork)
        task.add_done_callback(lambda task: note("told"))
        scheduler.submit(note, "next")
        try:
            scheduler.tick()
        except BaseException as error:
            note(type(error).__name__)
            try:
                scheduler.submit(int)
            except duepool.SchedulerClosed:
                os._exit(0 if os.getpid() != parent else 1)
        os.waitpid(task.result(), 0)
        """,
    )
    assert sorted(out.splitlines()) == ["SchedulerClosed False", "next True", "told True"]


def test_a_child_of_a_body_is_in_no_body(engine):
    out = child(
        engine,
        """
        scheduler = Scheduler(1)
        asked = threading.Event()

        def body():
            asked.wait(SOON)
            assert duepool.cancel_requested()
            pid = os.fork()
            if pid == 0:
                print(duepool.current_task(), duepool.cancel_requested())
                duepool.checkpoint()
                print(scheduler._engine.runs_here())
                own = Scheduler(0, clock=ManualClock())
                task = own.submit(duepool.current_task)
                own.tick()
                print(task.result() is task)
                sys.stdout.flush()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert duepool.cancel_requested()
            return 1

        task = scheduler.submit(body)
        while not task.running():
            time.sleep(0.001)
        task.cancel()
        asked.set()
        try:
            task.result(SOON)
        except duepool.CancelledError as error:
            assert error.__cause__ is None, repr(error.__cause__)
        """,
    )
    assert out == "None False\nFalse\nTrue"


_REFUSED = [
    "scheduler.submit(int)",
    "scheduler.submit_many([int])",
    "scheduler.with_options(name='x').submit(int)",
    "scheduler.cancel(task)",
    "scheduler.cancel(1)",
    "scheduler.cancel(999)",
    "scheduler.cancel_many([task])",
    "scheduler.cancel_many([1])",
    "scheduler.cancel_many([999])",
    "scheduler.get(1)",
    "scheduler.get(999)",
    "scheduler.view(1)",
    "scheduler.tasks()",
    "scheduler.stats()",
    "scheduler.now_ns()",
    "scheduler.next_due_ns",
    "scheduler.shutdown()",
    "scheduler.shutdown_now()",
    "scheduler.stop()",
    "scheduler.await_termination(1)",
    "task.result()",
    "task.result(1)",
    "task.exception()",
    "task.cancel()",
    "task.reschedule(1)",
    "task.add_done_callback(print)",
    "cf.wait([task])",
    "cf.wait([task], timeout=1)",
    "list(cf.as_completed([task]))",
]


@pytest.mark.parametrize("shared", [False, True])
def test_a_child_is_refused_and_never_waits(engine, shared):
    out = child(
        engine,
        f"""
        refused = {_REFUSED}
        scheduler = Scheduler(2)
        task = scheduler.submit_after(1000, int)
        done = scheduler.submit(int)
        assert done.result(SOON) == 0
        if {shared}:
            task._condition, done._condition
        # Other threads hold the locks of scheduler and tasks at the moment of the fork.
        held = threading.Event()

        def hold():
            with task._condition, done._condition:
                held.set()
                time.sleep(1000)

        if {shared}:
            threading.Thread(target=hold, daemon=True).start()
            held.wait(SOON)

        def churn():
            while True:
                scheduler.submit(int).cancel()

        threading.Thread(target=churn, daemon=True).start()
        for number in range(5):
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                for call in refused:
                    try:
                        print(call, eval(call), flush=True)
                    except duepool.SchedulerClosed:
                        pass
                    except BaseException as error:
                        print(call, repr(error), flush=True)
                assert done.result() == 0 and done.result(1) == 0 and done.done()
                try:
                    assert cf.wait([done], timeout=1).done == {{done}}
                except BaseException as error:
                    print("wait for a finished task:", repr(error), flush=True)
                task._leave_wait()
                scheduler._engine.end_block()
                scheduler._engine.leave_inside(True)
                repr(scheduler), repr(task)
                own = Scheduler(1)
                assert own.submit(int).result(SOON) == 0
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            if status:
                print("child", number, "ended with", status)
                break
        sys.stdout.flush()
        os._exit(0)  # not by way of the locks that are held
        """,
    )
    assert out == ""


def test_a_parent_goes_on_while_children_come_and_go(engine):
    out = child(
        engine,
        """
        scheduler = Scheduler(2, history=0)
        end = time.monotonic() + CAMPAIGN_S
        rounds = 0
        while time.monotonic() < end:
            rounds += 1
            tasks = [scheduler.submit(os.fork) for _ in range(2)]
            tasks += [scheduler.submit_after(1e-4, int) for _ in range(3)]
            for task in tasks[:2]:
                assert os.waitpid(task.result(SOON), 0)[1] == 0, rounds
            assert [task.result(SOON) for task in tasks[2:]] == [0] * 3
        stats = scheduler.stats()
        assert stats.succeeded == 5 * rounds, (rounds, stats)
        assert scheduler.shutdown(timeout=SOON).complete
        """,
    )
    assert out == ""
