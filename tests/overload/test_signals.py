"""Ctrl-C, signal handlers, forks and interpreter exit while submissions wait for room."""

import pytest
from attacks.support import child, forks, posix_signals

pytestmark = posix_signals

COMMON = """
        from duepool import overload
        from duepool._values import AFTER, REJECT

        main = threading.get_ident()

        def asleep():
            # The main thread is in the wait of a submission.
            frame = sys._current_frames()[main]
            return frame.f_code.co_name == "acquire" and "duepool" in frame.f_code.co_filename

        def when_asleep(call):
            def run():
                end = time.monotonic() + SOON
                while not asleep() and time.monotonic() < end:
                    time.sleep(0.001)
                call()
            threading.Thread(target=run, daemon=True).start()

        struck = []

        def on_signal(number, act):
            def handler(*_):
                if not struck:
                    struck.append(number)
                    act()
            signal.signal(number, handler)

        def raise_interrupt():
            raise KeyboardInterrupt

        def strike(number=signal.SIGINT):
            # Until it is heard: a signal that comes a moment before a thread sleeps does not wake
            # it, on any lock of Python.
            struck.clear()
            def run():
                end = time.monotonic() + SOON
                while not struck and time.monotonic() < end:
                    if asleep():
                        signal.pthread_kill(main, number)
                    time.sleep(0.002)
            threading.Thread(target=run, daemon=True).start()

        on_signal(signal.SIGINT, raise_interrupt)

        def free_places(scheduler):
            added = []
            try:
                while True:
                    added.append(scheduler._engine.submit_as(
                        None, AFTER, 10**12, int, (), None, None, -1, REJECT))
            except duepool.QueueFull:
                pass
            for task in added:
                task.cancel()
            return len(added)

        def in_line(scheduler):
            lines = scheduler._engine.config.face.room._lines.values()
            return sum(len(line.waiters) for line in lines)
"""


def run(engine, script):
    return child(engine, COMMON + script)


CALLS = {
    "submit": "scheduler.submit(int)",
    "submit_after": "scheduler.submit_after(1, int)",
    "submit_many": "scheduler.submit_many([int])",
    "options": "scheduler.with_options(name='x', timeout=5).submit(int)",
    "map": "next(scheduler.map(int, [1]))",
    "repeat": "scheduler.repeat(1, int)",
}


@pytest.mark.parametrize("call", CALLS)
def test_c30_ctrl_c_ends_a_blocked_call(engine, call):
    out = run(
        engine,
        f"""
        scheduler = Scheduler(1, capacity=1, overload="block")
        holder = scheduler.submit_after(1000, int)
        for _ in range(10):
            strike()
            start = time.monotonic()
            try:
                {CALLS[call]}
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("not interrupted")
            assert time.monotonic() - start < SOON
            assert in_line(scheduler) == 0
            assert free_places(scheduler) == 0
        holder.cancel()
        assert free_places(scheduler) == 1
        print(scheduler.submit(int).result(SOON), scheduler.stats().admitted)
        """,
    )
    assert out.split()[0] == "0"


def test_ctrl_c_passes_the_turn_on(engine):
    out = run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=1, overload="block")
        holder = scheduler.submit_after(1000, int)
        got = []
        later = threading.Thread(target=lambda: got.append(scheduler.submit_after(1, int)))

        def interrupt():
            later.start()
            while in_line(scheduler) < 2:
                time.sleep(0.001)
            strike()

        when_asleep(interrupt)
        try:
            scheduler.submit(int)
        except KeyboardInterrupt:
            holder.cancel()
        later.join(SOON)
        print(len(got), in_line(scheduler), scheduler.stats().queued)
        """,
    )
    assert out == "1 0 1"


def test_a_handler_that_submits_goes_before_what_it_has_interrupted(engine):
    # Were it behind it in the line, neither would ever go on.
    out = run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=1, overload="block")
        holder = scheduler.submit_after(1000, int)
        order = []

        def handler():
            when_asleep(holder.cancel)
            task = scheduler.with_options(name="handler").submit(int)
            order.append(task.name)
            when_asleep(task.cancel)

        on_signal(signal.SIGUSR1, handler)
        strike(signal.SIGUSR1)
        task = scheduler.with_options(name="main").submit(int)
        order.append(task.name)
        print(order, in_line(scheduler), scheduler.stats().queued)
        """,
    )
    assert out == "['handler', 'main'] 0 1"


def test_a_handler_in_another_tenants_line(engine):
    out = run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=2, overload="block",
                              quotas={"a": 1, "b": 1})
        a, b = scheduler.with_options(tenant="a"), scheduler.with_options(tenant="b")
        first, second = a.submit_after(1, int), b.submit_after(1, int)
        order = []

        def handler():
            when_asleep(second.cancel)
            b.submit(int)
            order.append("b")
            when_asleep(first.cancel)

        on_signal(signal.SIGUSR1, handler)
        strike(signal.SIGUSR1)
        a.submit(int)
        print(order, in_line(scheduler), scheduler.stats().queued)
        """,
    )
    assert out == "['b'] 0 2"


def test_a_handler_shuts_down_what_it_has_interrupted(engine):
    out = run(
        engine,
        """
        scheduler = Scheduler(1, capacity=1, overload="block")
        scheduler.submit_after(1000, int)
        on_signal(signal.SIGUSR1, lambda: scheduler.shutdown(delayed="cancel"))
        strike(signal.SIGUSR1)
        try:
            scheduler.submit(int)
        except duepool.SchedulerClosed:
            print("closed", in_line(scheduler), scheduler.await_termination(SOON))
        """,
    )
    assert out == "closed 0 True"


@forks
def test_c36_a_fork_in_a_handler_never_hangs_what_it_has_interrupted(engine):
    # In the child nobody is there to make room; the parent goes on undisturbed.
    out = run(
        engine,
        """
        scheduler = Scheduler(1, capacity=1, overload="block")
        holder = scheduler.submit_after(1000, int)
        pids = []

        def handler():
            pid = os.fork()
            if pid:
                pids.append(pid)
                when_asleep(holder.cancel)

        on_signal(signal.SIGUSR1, handler)
        strike(signal.SIGUSR1)
        try:
            task = scheduler.submit(int)
        except duepool.SchedulerClosed as error:
            os._exit(7 if "fork" in str(error) and not pids else 8)
        assert pids, "the child was let in"
        end = time.monotonic() + SOON
        while (status := os.waitpid(pids[0], os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, "the child hangs"
            time.sleep(0.001)
        print(task.result(SOON), os.waitstatus_to_exitcode(status[1]), in_line(scheduler))
        """,
    )
    assert out == "0 7 0"


@forks
def test_c36_a_child_finds_the_parents_line_closed(engine):
    out = run(
        engine,
        """
        scheduler = Scheduler(1, capacity=1, overload="block")
        scheduler.submit_after(1000, int)
        waiting = threading.Thread(target=lambda: scheduler.submit(int), daemon=True)
        waiting.start()
        while not in_line(scheduler):
            time.sleep(0.001)
        pid = os.fork()
        if pid == 0:
            code = 0
            for call in (lambda: scheduler.submit(int), lambda: list(scheduler.map(int, [1]))):
                try:
                    call()
                    code = 1
                except duepool.SchedulerClosed:
                    pass
            os._exit(code)
        end = time.monotonic() + SOON
        while (status := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, "the child hangs"
            time.sleep(0.001)
        print(status[1], in_line(scheduler), flush=True)
        os._exit(0)
        """,
    )
    assert out == "0 1"


def test_c34_interpreter_exit_ends_the_waits_of_other_threads(engine):
    out = run(
        engine,
        """
        scheduler = Scheduler(1, capacity=1, overload="block", exit_grace=0)
        scheduler.submit_after(1000, int)

        def wait():
            try:
                scheduler.submit(int)
            except duepool.SchedulerClosed:
                print("closed", flush=True)

        threading.Thread(target=wait).start()
        while not in_line(scheduler):
            time.sleep(0.001)
        """,
    )
    assert out == "closed"


def test_a_finalizer_that_waits_for_room_while_the_line_is_walked(engine):
    # Garbage is collected as often as possible, and its finalizers submit to the full scheduler.
    out = run(
        engine,
        """
        import gc
        scheduler = Scheduler(2, capacity=3, overload=overload.Block(0.001))
        ran = refused = 0

        class Cycle:
            def __init__(self):
                self.me = self

            def __del__(self):
                global ran, refused
                try:
                    scheduler.submit(int)
                    ran += 1
                except RuntimeError:  # full, or under the reference engine's lock
                    refused += 1

        gc.set_threshold(1)
        end = time.monotonic() + CAMPAIGN_S
        mine = 0
        while time.monotonic() < end:
            Cycle()
            try:
                scheduler.submit(int)
                mine += 1
            except duepool.QueueFull:
                pass
        gc.set_threshold(700, 10, 10)
        gc.collect()
        assert scheduler.shutdown(timeout=SOON).complete
        stats = scheduler.stats()
        assert stats.admitted == stats.succeeded == mine + ran, (stats, mine, ran)
        assert in_line(scheduler) == 0
        """,
    )
    assert out == ""
