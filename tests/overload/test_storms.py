"""Storms on tiny capacities: random time-outs, cancels, Ctrl-C, coroutines, tenants.

Each runs in a child process, whose watchdog finds what waits for ever: a lost wake-up. At the end
the capacity must be what it was, to the place, and the line empty.
"""

from attacks.support import child, posix_signals

COMMON = """
        import asyncio
        from duepool import overload
        from duepool._values import AFTER, REJECT

        CLOSED = (duepool.SchedulerClosed, duepool.CancelledError)
        LATER = 1000
        sys.setswitchinterval(1e-5)

        def free_places(scheduler, tenant=-1):
            added = []
            try:
                while True:
                    added.append(scheduler._engine.submit_as(
                        None, AFTER, 10**12, int, (), None, None, tenant, REJECT))
            except duepool.QueueFull:
                pass
            for task in added:
                task.cancel()
            return len(added)

        def check(scheduler, capacity, quotas=()):
            room = scheduler._engine.config.face.room
            stats = scheduler.stats()
            assert stats.queued == 0, stats
            assert scheduler._engine.counts().inside_waiting == 0, scheduler._engine.counts()
            for line in room._lines.values():
                assert not (line.waiters or line.debts or line.marks), line.tenant
            assert not room._stacks and not scheduler._engine.config.crew.guards
            found = [free_places(scheduler, index) for index in range(-1, len(quotas))]
            assert found == [capacity, *(min(quota, capacity) for quota in quotas)], found

        class Storm:
            def __init__(self):
                self.end = time.monotonic() + CAMPAIGN_S
                self.errors = []
                self.threads = []

            def start(self, call, *args):
                def run():
                    try:
                        while time.monotonic() < self.end:
                            call(*args)
                    except BaseException as error:
                        import traceback
                        self.errors.append(traceback.format_exc())
                thread = threading.Thread(target=run)
                thread.start()
                self.threads.append(thread)

            def finish(self):
                for thread in self.threads:
                    thread.join()
                assert not self.errors, self.errors[0]

        def spin():
            for _ in range(random.randrange(200)):
                pass

        class Moody:
            # Waits without limit, for a random time, or not at all.
            def on_full(self, submission):
                limit = random.choice([None, None, 0, 1e-6, 1e-5, 1e-4, 1e-3])
                answer = submission.wait(limit)
                return submission.reject() if answer is None else answer
"""


def run(engine, script):
    assert child(engine, COMMON + script) == ""


def test_threads_that_give_up_and_threads_that_do_not(engine):
    # Only those who hold a place free it: if one wake-up is lost, everybody waits for ever.
    run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=2, overload=Moody())
        storm = Storm()

        def use():
            try:
                task = scheduler.submit_after(LATER, int)
            except duepool.QueueFull:
                return
            spin()
            assert task.cancel()

        def use_two():
            try:
                tasks = scheduler.submit_many([int, int], LATER)
            except duepool.QueueFull:
                return
            spin()
            assert scheduler.cancel_many(tasks) == 2

        for _ in range(5):
            storm.start(use)
        storm.start(use_two)
        storm.finish()
        check(scheduler, 2)
        """,
    )


def test_tenants(engine):
    run(
        engine,
        """
        quotas = {"a": 1, "b": 2, "c": 3}
        scheduler = Scheduler(0, clock=ManualClock(), capacity=3, overload=Moody(), quotas=quotas)
        options = [scheduler, *(scheduler.with_options(tenant=name) for name in quotas)]
        storm = Storm()

        def use(options, most):
            try:
                if random.random() < 0.3:
                    tasks = options.submit_many([int] * random.randint(1, most), LATER)
                else:
                    tasks = [options.submit_after(LATER, int)]
            except duepool.QueueFull:
                return
            spin()
            assert scheduler.cancel_many(tasks) == len(tasks)

        for one, most in zip(options, (3, 1, 2, 3)):
            storm.start(use, one, most)
            storm.start(use, one, most)
        storm.finish()
        check(scheduler, 3, (1, 2, 3))
        """,
    )


def test_workers_make_room_and_bodies_submit(engine):
    run(
        engine,
        """
        scheduler = Scheduler(2, capacity=2, overload=Moody())
        storm = Storm()
        REFUSED = (duepool.RejectedError, duepool.WouldDeadlock)

        def body(depth):
            if depth:
                try:
                    scheduler.submit(body, depth - 1)
                except REFUSED:
                    pass

        def use():
            try:
                task = scheduler.submit(body, 2)
                if random.random() < 0.3:
                    task.cancel()
            except REFUSED:
                pass

        for _ in range(4):
            storm.start(use)
        storm.finish()
        assert scheduler.shutdown(timeout=SOON).complete
        stats = scheduler.stats()
        assert stats.queued == stats.failed == 0, stats
        assert scheduler._engine.counts().inside_waiting == 0
        """,
    )


def test_coroutines_that_are_cancelled_among_threads(engine):
    run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=2, overload=Moody())
        storm = Storm()

        def use():
            try:
                task = scheduler.submit_after(LATER, int)
            except duepool.QueueFull:
                return
            spin()
            assert task.cancel()

        async def one(leave):
            task = await scheduler.submit_async(int)
            if leave:
                await asyncio.sleep(0)
            assert task.cancel()

        async def many():
            waiting = [asyncio.ensure_future(one(False)) for _ in range(random.randrange(1, 9))]
            for task in random.sample(waiting, len(waiting) // 2):
                for _ in range(random.randrange(4)):
                    await asyncio.sleep(0)
                task.cancel()
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert result is None or isinstance(result, asyncio.CancelledError), result

        for _ in range(2):
            storm.start(use)
            storm.start(lambda: asyncio.run(many()))
        storm.finish()
        check(scheduler, 2)
        """,
    )


def test_loops_that_are_closed_half_way(engine):
    # What waits on a loop that is gone never leaves by itself; those behind it are served.
    run(
        engine,
        """
        import gc
        scheduler = Scheduler(0, clock=ManualClock(), capacity=1, overload=Moody())
        storm = Storm()
        abandoned = []

        def use():
            try:
                task = scheduler.submit_after(LATER, int)
            except duepool.QueueFull:
                return
            spin()
            assert task.cancel()

        def abandon():
            loop = asyncio.new_event_loop()
            made = [loop.create_task(scheduler.submit_async(int)) for _ in range(3)]
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            for task in made:
                task._log_destroy_pending = False
                if task.done():
                    task.result().cancel()
            abandoned.append(made)
            if len(abandoned) > 100:
                del abandoned[:]
            spin()

        sys.unraisablehook = lambda _: None  # coroutines of closed loops end with a murmur
        for _ in range(3):
            storm.start(use)
        storm.start(abandon)
        storm.finish()
        abandoned.clear()
        gc.collect()
        check(scheduler, 1)
        """,
    )


def test_first_come_first_served_in_a_storm(engine):
    # Whoever is served in line gets an id that is greater than those of all who stood before him.
    run(
        engine,
        """
        from collections import OrderedDict
        from duepool import _line

        lock = threading.Lock()
        came, ids = [], {}

        class Written(OrderedDict):
            def __setitem__(self, waiter, value):
                with lock:
                    super().__setitem__(waiter, value)
                    came.append(waiter)
                    last[threading.get_ident()] = waiter

        class Noted(Moody):
            def on_full(self, submission):
                answer = submission.wait(random.choice([None, None, 0, 1e-5, 1e-4, 1e-3]))
                if answer is None:
                    return submission.reject()  # it has left the line: if it enters, it is later
                ids[last[threading.get_ident()]] = answer.id
                return answer

        last = {}
        _line.OrderedDict = Written
        scheduler = Scheduler(1, capacity=2, overload=Noted())
        storm = Storm()

        def use():
            try:
                scheduler.submit(spin)
            except duepool.QueueFull:
                pass

        for _ in range(6):
            storm.start(use)
        storm.finish()
        order = [ids[waiter] for waiter in came if waiter in ids]
        assert len(order) > 50, len(order)
        assert order == sorted(order), [p for p in zip(order, order[1:]) if p[0] > p[1]][:5]
        """,
    )


def test_close_while_everybody_waits(engine):
    run(
        engine,
        """
        end = time.monotonic() + CAMPAIGN_S
        while time.monotonic() < end:
            scheduler = Scheduler(1, capacity=1, overload="block")
            accepted = []

            def use():
                try:
                    while True:
                        accepted.append(scheduler.submit(spin))
                except duepool.SchedulerClosed:
                    pass

            async def one():
                while True:
                    try:
                        accepted.append(await scheduler.submit_async(spin))
                    except duepool.SchedulerClosed:
                        return

            async def many():
                await asyncio.gather(*(one() for _ in range(3)))

            threads = [threading.Thread(target=use) for _ in range(3)]
            threads.append(threading.Thread(target=lambda: asyncio.run(many())))
            for thread in threads:
                thread.start()
            for _ in range(random.randrange(20)):
                spin()
            if random.random() < 0.5:
                scheduler.shutdown(wait=False)
            else:
                scheduler.shutdown_now()
            for thread in threads:
                thread.join()
            assert scheduler.await_termination(SOON)
            assert all(task.done() for task in accepted)
            assert len(accepted) == scheduler.stats().admitted
        """,
    )


@posix_signals
def test_ctrl_c_at_random_moments(engine):
    run(
        engine,
        """
        scheduler = Scheduler(0, clock=ManualClock(), capacity=2, overload=Moody(),
                              quotas={"a": 1})
        mine, theirs = scheduler.with_options(tenant="a"), scheduler.with_options(name="use")
        storm = Storm()

        def use():
            try:
                task = theirs.submit_after(LATER, int)
            except duepool.QueueFull:
                return
            spin()
            assert task.cancel()

        def sweep():
            # What was cut short when it was admitted, and before anybody had its handle.
            for job in scheduler.jobs():
                job.cancel()
            for task in scheduler.tasks():
                if task.name != "use":
                    task.cancel()

        # A job of the reference engine, whose steps are Python code, loses its place to a Ctrl-C at
        # the very entry of the function that gives it back.
        ways = 4 if duepool.engine == "cython" else 3

        def call():
            which = random.randrange(ways)
            try:
                if which == 0:
                    mine.submit_after(LATER, int).cancel()
                elif which == 1:
                    tasks = scheduler.submit_many([int] * 2, LATER)
                    scheduler.cancel_many(tasks)
                elif which == 3:
                    scheduler.repeat(LATER, int).cancel()
                else:
                    results = scheduler.map(int, [1, 2, 3], timeout=1e-4)
                    try:
                        next(results)
                    finally:
                        results.close()
            except (duepool.QueueFull, TimeoutError):
                pass

        for _ in range(2):
            storm.start(use)
        campaign = Campaign(longest_s=400e-6)
        while campaign.goes_on():
            campaign.round(call)
            sweep()
        storm.finish()
        sweep()
        assert campaign.hits > 20, campaign.hits
        check(scheduler, 2, (1,))
        """,
    )
