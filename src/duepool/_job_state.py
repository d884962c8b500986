"""Where a job stands, and every step that it can take, as pure functions.

A ``Standing`` is immutable; a step makes the next one from it, or None where there is nothing to
do. Steps run no code of the user's (a ``Site`` reads each clock once), so that whoever publishes
them (``Cell``) may begin again when somebody else was faster.

What keeps the steps apart:

- The trigger is asked by one thread at a time: the one whose token is in ``busy``. Nobody waits for
  it. Whoever changes the job meanwhile only leaves his change (``mail`` for the plan), and the one
  that is busy looks again before it is done.
- While a run is ``armed`` nobody is busy: the armed run takes the token along when it begins.
- ``generation`` changes with the trigger: an answer of the old one is then dropped.
"""

import enum
from typing import Any, Generic, NamedTuple, TypeVar

from ._courses import Site
from ._job_arithmetic import Plan, Span
from ._values import BY_DROPPED, BY_SHUTDOWN, BY_USER

T = TypeVar("T")


class JobState(enum.Enum):
    """Where a job stands. The last three are for good."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    ENDED = "ENDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """True in ENDED, FAILED and CANCELLED."""
        return self in (JobState.ENDED, JobState.FAILED, JobState.CANCELLED)

    def __repr__(self) -> str:
        return f"JobState.{self.name}"


class Rules(NamedTuple):
    """What the options of a job say about its runs."""

    overlap: str
    catch_up: str
    stop_on_error: bool
    most: float
    """How many runs may go on at once; infinity where there is no limit."""


class Standing(NamedTuple):
    """All that changes in a job. Runs are opaque here."""

    rules: Rules
    plan: Plan
    state: JobState = JobState.ACTIVE
    armed: Any = None
    """The run that is queued for the next point."""
    going: tuple[Any, ...] = ()
    """The runs that have begun and not ended."""
    extras: tuple[Any, ...] = ()
    """The runs of ``run_now`` that are queued."""
    full_since: int | None = None
    """Since when no further run may start, while that is so and the job is not paused."""
    paused_at: int = 0
    closing: bool = False
    """The scheduler is closed: the job ends with its last run."""
    busy: object = None
    generation: int = 0
    mail: tuple[Span, ...] = ()
    """Spans for the plan that came while somebody was busy with it."""
    withdrawn: tuple[tuple[Any, int], ...] = ()
    """Runs whose tasks are yet to be cancelled, with the reason."""
    runs: int = 0
    skipped: int = 0
    failures: int = 0
    last_exception: BaseException | None = None

    @property
    def most(self) -> float:
        """How many runs may go on at once."""
        return 1 if self.plan.course.from_end else self.rules.most

    @property
    def over(self) -> bool:
        """The job has ended and none of its runs goes on."""
        return self.state.terminal and not self.going

    @property
    def wants(self) -> bool:
        """The next point is to be found out and armed."""
        return (
            self.state is JobState.ACTIVE
            and not self.closing
            and self.armed is None
            and self.plan.head is not None
            and len(self.going) < self.most
        )

    # -- parts of steps ----------------------------------------------------------------------------

    def disarmed(self, reason: int) -> "Standing":
        """Without the armed run, whose task is to be cancelled."""
        if self.armed is None:
            return self
        return self._replace(armed=None, withdrawn=(*self.withdrawn, (self.armed, reason)))

    def with_span(self, start: int, end: int, one: bool) -> "Standing":
        """A stretch of time has its own fate; see ``Plan.span``."""
        if self.busy is not None:
            return self._replace(mail=(*self.mail, Span(start, end, one)))
        return self._replace(plan=self.plan.span(start, end, one))

    def answered(self, plan: Plan) -> "Standing":
        """The trigger has answered: nobody is busy any more, the mail is read."""
        for start, end, one in self.mail:
            plan = plan.span(start, end, one)
        return self._replace(plan=plan, busy=None, mail=())

    def full_at(self, now: int) -> "Standing":
        """One more run goes on since now."""
        if self.full_since is None and len(self.going) >= self.most:
            return self._replace(full_since=now)
        return self

    def room_at(self, now: int) -> "Standing":
        """No more runs than allowed go on: what passed meanwhile is a matter of overlap."""
        if self.full_since is None:
            return self
        since, queue = self.full_since, self.rules.overlap == "queue"
        new = self._replace(full_since=None)
        if self.armed is not None and since < self.armed.point <= now:
            if queue:  # the armed run is the one that is to follow
                return new.with_span(self.armed.point, now, False)
            new = new.disarmed(BY_DROPPED)
        return new.with_span(since, now, queue)

    def passed_over(self, site: Site | None) -> int:
        """The points that were skipped, up to now (None: as far as is known)."""
        new = self._replace(busy=None).answered(self.plan)
        if new.full_since is not None and site is not None:
            new = new.room_at(site.now(self.plan.course.wall))
        return self.skipped + new.plan.unsettled()

    def tidy(self, site: Site | None) -> "Standing":
        """What follows by itself: the end of a job for which nothing is left, and what the end of a
        job brings."""
        new = self
        if not new.state.terminal and not new.going:
            exhausted = new.plan.head is None and new.armed is None and not new.extras
            if new.closing or exhausted:
                new = new._replace(state=JobState.ENDED)
        if not new.state.terminal:
            return new
        new = new.stopped(BY_SHUTDOWN)
        skipped = new.passed_over(site)
        plan = new.plan._replace(spans=())
        return new._replace(skipped=skipped, plan=plan, mail=(), full_since=None)

    def stopped(self, reason: int) -> "Standing":
        """Nothing of the job stays queued."""
        new = self.disarmed(reason)
        if new.extras:
            extras = tuple((run, reason) for run in new.extras)
            new = new._replace(extras=(), withdrawn=new.withdrawn + extras)
        return new


# -- the trigger -----------------------------------------------------------------------------------


def ask(s: Standing, me: object) -> Standing | None:
    """Take the token to ask for the next point."""
    return s._replace(busy=me) if s.busy is None and s.wants else None


def arm(
    s: Standing, me: object, asked: Standing, plan: Plan, skipped: int, run: Any
) -> Standing | None:
    """The answer to what was asked in ``asked``: ``run`` for the next point, or None."""
    if s.busy is not me:
        return None
    if s.generation != asked.generation:
        return s.answered(s.plan)
    clear = not s.mail
    new = s.answered(plan)._replace(skipped=s.skipped + skipped)
    if run is not None and clear and new.wants:
        new = new._replace(armed=run)
    return new.tidy(None)


def let_go(s: Standing, me: object) -> Standing | None:
    """Nothing came of the asking."""
    return s.answered(s.plan) if s.busy is me else None


# -- runs ------------------------------------------------------------------------------------------


def begin(s: Standing, run: Any, site: Site, me: object) -> Standing | None:
    """The armed run starts: it goes on afterwards if it is in ``going``. With ``me`` in ``busy`` it
    is yet to be found out whether it is late."""
    if run in s.going or s.armed is not run:
        return None
    now = site.now(s.plan.course.wall)
    new = s._replace(armed=None)
    if len(s.going) >= s.most:
        # An extra run goes on.
        if s.rules.overlap == "queue":
            return new  # the point stays in the plan, for after that run
        if s.plan.course.from_end:
            return new._replace(plan=s.plan.begun(run.point), skipped=s.skipped + 1)
        return new._replace(plan=s.plan.spent(run.point - 1, now))
    new = new._replace(going=(*s.going, run))
    if s.rules.catch_up == "skip":
        return new._replace(busy=me).full_at(now)
    plan = s.plan.begun(run.point)
    if s.rules.catch_up == "coalesce":
        plan = plan.spent(run.point, now)
    return new._replace(plan=plan, runs=s.runs + 1).full_at(now)


def judge(
    s: Standing, run: Any, me: object, asked: Standing, plan: Plan, skipped: int, late: bool
) -> Standing | None:
    """Whether the run that has begun is late was found out. If so it does not go on."""
    if s.busy is not me:
        return None
    new = s.answered(plan if s.generation == asked.generation else s.plan)
    new = new._replace(skipped=s.skipped + skipped)
    if not late:
        return new._replace(runs=s.runs + 1)
    going = tuple(other for other in s.going if other is not run)
    new = new._replace(going=going)
    if len(going) < new.most:
        new = new._replace(full_since=None)
    return new.tidy(None)


def extra(s: Standing, run: Any) -> Standing | None:
    """``run_now``: the extra run is queued if it is in ``extras`` afterwards."""
    if run in s.extras or s.state.terminal or s.closing:
        return None
    if len(s.going) + len(s.extras) >= s.most:
        return s._replace(skipped=s.skipped + 1)
    return s._replace(extras=(*s.extras, run))


def begin_extra(s: Standing, run: Any, site: Site) -> Standing | None:
    """An extra run starts, if it is in ``going`` afterwards."""
    if run not in s.extras:
        return None
    new = s._replace(extras=tuple(other for other in s.extras if other is not run))
    if len(s.going) >= s.most:
        return new._replace(skipped=s.skipped + 1).tidy(None)
    new = new._replace(going=(*s.going, run), runs=s.runs + 1)
    return new if s.state is JobState.PAUSED else new.full_at(site.now(s.plan.course.wall))


def end(s: Standing, run: Any, site: Site | None, error: BaseException | None) -> Standing | None:
    """The task of a run has ended, whether it had begun or not, or there never was one."""
    if run in s.going:
        assert site is not None
        now = site.now(s.plan.course.wall)
        new = s._replace(going=tuple(other for other in s.going if other is not run))
        if s.busy is None:
            new = new._replace(plan=s.plan.ended(now))
        if len(new.going) < new.most:
            new = new.room_at(now)
    elif s.armed is run:
        # Cancelled by somebody else while it was queued.
        new = s._replace(armed=None, plan=s.plan.begun(run.point), skipped=s.skipped + 1)
    elif run in s.extras:
        new = s._replace(extras=tuple(other for other in s.extras if other is not run))
    else:
        return None
    if error is not None:
        new = new._replace(failures=s.failures + 1, last_exception=error)
        if s.rules.stop_on_error and not s.state.terminal:
            new = new._replace(state=JobState.FAILED)
    return new.tidy(site)


# -- the handle ------------------------------------------------------------------------------------


def pause(s: Standing, site: Site) -> Standing | None:
    """Nothing is armed until the job is resumed."""
    if s.state is not JobState.ACTIVE:
        return None
    now = site.now(s.plan.course.wall)
    return s.room_at(now).disarmed(BY_USER)._replace(state=JobState.PAUSED, paused_at=now)


def resume(s: Standing, site: Site) -> Standing | None:
    """Points go on to be armed; what was missed is a matter of catch-up."""
    if s.state is not JobState.PAUSED:
        return None
    now = site.now(s.plan.course.wall)
    new = s._replace(state=JobState.ACTIVE)
    if s.rules.catch_up != "burst":
        # What is coalesced into one run has to be let go where a run goes on that forbids it.
        forbidden = len(s.going) >= s.most and s.rules.overlap != "queue"
        one = s.rules.catch_up == "coalesce" and not forbidden
        new = new.with_span(s.paused_at, now, one)
    return new.full_at(now)


def reschedule(s: Standing, plan: Plan, site: Site) -> Standing | None:
    """Another trigger, from now on."""
    if s.state.terminal or s.plan.course is plan.course:
        return None
    now = site.now(plan.course.wall)
    new = s.disarmed(BY_USER)._replace(
        plan=plan,
        mail=(),
        generation=s.generation + 1,
        skipped=s.passed_over(site),
        full_since=None,
        paused_at=now,
    )
    return new if s.state is JobState.PAUSED else new.full_at(now)


def finish(
    s: Standing, state: JobState, site: Site | None, error: BaseException | None = None
) -> Standing | None:
    """The job has failed or is cancelled: nothing is armed any more."""
    if s.state.terminal:
        return None
    new = s.stopped(BY_USER)._replace(state=state)
    return (new if error is None else new._replace(last_exception=error)).tidy(site)


def withdrawn(s: Standing, run: Any) -> Standing | None:
    """The task of a run is cancelled, or began."""
    rest = tuple(pair for pair in s.withdrawn if pair[0] is not run)
    return s._replace(withdrawn=rest) if len(rest) < len(s.withdrawn) else None


def close(s: Standing, site: Site | None) -> Standing | None:
    """The scheduler is closed: the job ends, with its last run if one goes on."""
    if s.state.terminal or s.closing:
        return None
    return s._replace(closing=True).stopped(BY_SHUTDOWN).tidy(site)


# -- publishing ------------------------------------------------------------------------------------


class _Link(Generic[T]):
    __slots__ = ("next", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        # Under the key 0 the link that follows; a dict, because ``setdefault`` is atomic.
        self.next: dict[int, _Link[T]] = {}


class Cell(Generic[T]):
    """A value that is replaced by compare-and-swap, without a lock: a thread, a signal handler or a
    finalizer may come between any two instructions of another and neither waits.

    Each value is linked to the one that followed it; whoever links the next one first has won.
    """

    __slots__ = ("_link",)

    def __init__(self, value: T) -> None:
        self._link = _Link(value)

    def _last(self) -> _Link[T]:
        # ``_link`` may be set back by a slower thread: it is only where to begin to look.
        link = self._link
        while (following := link.next.get(0)) is not None:
            link = following
        self._link = link
        return link

    def get(self) -> T:
        """The value in force."""
        return self._last().value

    def change(self, step: Any, *args: Any) -> tuple[T, bool]:
        """Replace the value by ``step(value, *args)`` unless that is None; the value in force then,
        and whether it was replaced."""
        while True:
            last = self._last()
            value = step(last.value, *args)
            if value is None:
                return last.value, False
            link = _Link(value)
            if last.next.setdefault(0, link) is link:
                self._link = link
                return value, True
