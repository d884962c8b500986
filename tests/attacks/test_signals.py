"""Signal handlers that come back into the scheduler, and interrupts while workers are hired."""

import pytest

from .support import child, posix_signals

pytestmark = posix_signals


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_shuts_down_while_its_thread_hires(engine, when):
    # The worker that the interrupted code is about to start will never come: nobody waits for it.
    out = child(
        engine,
        f"""
        when = {when!r}
        """
        """
        scheduler = Scheduler(2)
        ran = []
        signal.signal(signal.SIGUSR1, lambda *_: ran.append(scheduler.shutdown(wait=True).complete))
        start = threading.Thread.start

        def interrupted_start(thread):
            threading.Thread.start = start
            if when == "before":
                signal.raise_signal(signal.SIGUSR1)
            start(thread)
            if when == "after":
                signal.raise_signal(signal.SIGUSR1)

        threading.Thread.start = interrupted_start
        try:
            scheduler.submit(int)
        except duepool.SchedulerClosed:
            ran.append("refused")
        counts = scheduler._engine.counts()
        print(ran, counts.live_workers, counts.queued, scheduler.await_termination(SOON))
        """,
    )
    assert out == "[True, 'refused'] 0 0 True"


def test_a_handler_shuts_down_while_a_second_worker_is_hired(engine):
    out = child(
        engine,
        """
        scheduler = Scheduler(2)
        gate = threading.Event()
        first = scheduler.submit(gate.wait, SOON)
        ran = []

        def handler(*_):
            gate.set()
            ran.append(scheduler.shutdown(wait=True).complete)

        signal.signal(signal.SIGUSR1, handler)
        start = threading.Thread.start

        def interrupted_start(thread):
            threading.Thread.start = start
            signal.raise_signal(signal.SIGUSR1)
            start(thread)

        threading.Thread.start = interrupted_start
        try:
            scheduler.submit(int)
        except duepool.SchedulerClosed:
            ran.append("refused")
        print(ran, first.result(SOON), scheduler._engine.counts().live_workers)
        """,
    )
    assert out == "[True, 'refused'] True 0"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "RuntimeError"])
def test_a_hire_that_is_cut_short(engine, when, error):
    # Whether the thread exists or not: the scheduler knows how many workers it has.
    out = child(
        engine,
        f"""
        when, error = {when!r}, {error}
        """
        """
        scheduler = Scheduler(1)
        start = threading.Thread.start

        def failing_start(thread):
            threading.Thread.start = start
            if when == "after":
                start(thread)
            raise error

        threading.Thread.start = failing_start
        try:
            scheduler.submit(int)
        except error:
            print("raised")
        assert [scheduler.submit(int).result(SOON) for _ in range(3)] == [0] * 3
        assert scheduler._engine.counts().live_workers == 1
        workers = [t for t in threading.enumerate() if t.name.startswith("duepool")]
        assert len(workers) == 1, workers
        report = scheduler.shutdown(timeout=SOON)
        print(report.complete, scheduler._engine.counts().live_workers)
        """,
    )
    assert out == "raised\nTrue 0"


def test_a_storm_of_interrupts_on_submits_that_hire(engine):
    out = child(
        engine,
        """
        campaign = Campaign(longest_s=300e-6)

        def submit():
            try:
                scheduler.submit(int)
            except RuntimeError as error:
                # Where it strikes the Condition in Thread.start(), threading raises this instead.
                assert "lock" in str(error), error

        while campaign.goes_on():
            scheduler = Scheduler(3)
            for _ in range(3):
                campaign.round(submit)
            scheduler.submit(int).result(SOON)
            counts = scheduler._engine.counts()
            assert 1 <= counts.live_workers <= 3, (campaign.rounds, counts)
            report = scheduler.shutdown(timeout=SOON)
            counts = scheduler._engine.counts()
            assert report.complete, (campaign.rounds, report)
            assert counts.live_workers == 0, (campaign.rounds, counts)
        assert campaign.hits, campaign.rounds
        os._exit(0)
        """,
    )
    assert out == ""


def test_a_handler_makes_a_scheduler_while_one_is_being_made(engine):
    out = child(
        engine,
        """
        made = 0

        def handler(*_):
            global made
            made += 1
            Scheduler(0)
            signal.setitimer(signal.ITIMER_REAL, 3e-5)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 3e-5)
        end = time.monotonic() + CAMPAIGN_S
        while time.monotonic() < end:
            Scheduler(0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert made > 10
        """,
    )
    assert out == ""


@pytest.mark.parametrize(
    "call", ["cf.wait(tasks)", "list(cf.as_completed(tasks))", "tasks[0].result()"]
)
def test_an_interrupt_of_a_wait_leaves_nothing_behind(engine, call):
    out = child(
        engine,
        f"""
        scheduler = Scheduler(2)
        gate = threading.Event()
        main = threading.get_ident()

        def strike():
            # Once the main thread sleeps on the lock of its wait, and not before.
            end = time.monotonic() + SOON
            while time.monotonic() < end:
                frame = sys._current_frames()[main]
                if frame.f_code.co_name == "acquire" and "duepool" in frame.f_code.co_filename:
                    signal.pthread_kill(main, signal.SIGINT)
                    return
                time.sleep(0.001)

        for _ in range(20):
            gate.clear()
            tasks = [scheduler.submit(gate.wait, SOON) for _ in range(3)]
            threading.Thread(target=strike, daemon=True).start()
            try:
                {call}
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("not interrupted")
            gate.set()
            done, rest = cf.wait(tasks, timeout=SOON)
            assert not rest, rest
            assert [task.result(SOON) for task in tasks] == [True] * 3
        assert scheduler._engine.counts().inside_waiting == 0
        assert scheduler.shutdown(timeout=SOON).complete
        """,
    )
    assert out == ""
