"""A state machine that drives both engines with the same steps and compares all that can be seen.

Manual mode under a manual clock, so that both see the same instants. Bodies and callbacks come
back into their scheduler in every way: they submit, cancel, reschedule, advance, tick and shut
down. Derandomized: the same steps each time.
"""

import datetime
import math
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duepool import TaskState

from .world import World

EXAMPLES = 400
STEPS = 40

# A shutdown ends most of what can happen, so it comes late.
SHUTDOWN_AFTER_STEPS = 15

DELAYS = st.sampled_from([0, 0, 0.0, 1e-9, 1.5e-9, 0.1, 0.25, 1, 1.0, 2, 3600])
ODD_DELAYS = st.sampled_from(
    [
        *(-1, -1e-300, math.nan, math.inf, -math.inf, None, True, False, "1", b"1", 1j, [], 10**30),
        *(9.3e9, 2**63 // 10**9, 9_223_372_036.854775, datetime.timedelta.max, -0.0, 5e-324),
        *(datetime.timedelta(microseconds=1), datetime.timedelta(seconds=-1), 0.5e-9, 2.5e-9),
    ]
)
OFFSETS_NS = st.sampled_from([-(10**9), -1, 0, 1, 7, 10**9, 2**40])
ODD_DUES = st.sampled_from(
    [-5, -(2**70), 0, 2**63 - 1, 2**63, 2**80, 1.0, None, True, "0", math.nan]
)
INDEXES = st.integers(0, 30)
IDS = st.one_of(st.integers(1, 6), st.integers(-1, 30))
ODD_IDS = st.sampled_from([True, "1", None, 1.0, 2**70, -(2**70), object])
ERRORS = st.sampled_from([ValueError, KeyError, SystemExit, KeyboardInterrupt, GeneratorExit])
SHUTDOWNS = st.fixed_dictionaries(
    {},
    optional={
        "wait": st.booleans(),
        "cancel_futures": st.booleans(),
        "delayed": st.sampled_from(["run", "cancel", "never", 1]),
        "timeout": st.sampled_from([None, 0, -1, math.inf, math.nan, "1"]),
    },
)

INNER = st.sampled_from([(), (("return", 7),), (("raise", ValueError),)])


def action(name: str, *operands: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *operands)


ACTIONS = st.one_of(
    action("return", st.sampled_from([None, 7])),
    action("raise", ERRORS),
    action("submit", INNER),
    action("submit_after", DELAYS, INNER),
    action("submit_from_now", OFFSETS_NS, INNER),
    action("submit_many", st.lists(INNER, max_size=3), DELAYS),
    action("cancel", INDEXES),
    action("cancel_id", IDS),
    action("cancel_self"),
    action("checkpoint"),
    action("reschedule", INDEXES, DELAYS),
    action("advance", DELAYS),
    action("tick"),
    action("sleep", DELAYS),
    action("wait", INDEXES),
    action("callback", INDEXES, st.tuples(st.just("raise"), ERRORS)),
    action("look"),
)
RARE = st.one_of(action("shutdown", SHUTDOWNS), action("shutdown_now"), action("await_termination"))
BODIES = st.lists(ACTIONS, max_size=3).map(tuple)
CALLBACKS = st.one_of(
    action("look"),
    action("raise", ERRORS),
    action("submit", INNER),
    action("cancel", INDEXES),
    action("reschedule", INDEXES, DELAYS),
    action("tick"),
)


class Engines(RuleBasedStateMachine):
    """Two worlds, one on each engine, that must never differ."""

    engines = ("cython", "python")

    @initialize(
        capacity=st.sampled_from([None, 20, 5, 2, 1]),
        history=st.sampled_from([0, 1, 3, 1024]),
        past_due=st.sampled_from(["run", "run", "reject"]),
        context=st.sampled_from(["copy", "none"]),
        start_ns=st.sampled_from([0, 0, 1, 10**18, 2**63 - 1 - 2 * 10**9]),
    )
    def begin(self, start_ns: int, **options: Any) -> None:
        self.worlds = [World(engine, start_ns, **options) for engine in self.engines]
        self.count = 0

    def both(self, name: str, *operands: Any) -> Any:
        self.count += 1
        first, second = (world.step(name, *operands) for world in self.worlds)
        assert first == second
        return first[0]

    @invariant()
    def they_show_the_same(self) -> None:
        if not hasattr(self, "worlds"):
            return
        for world in self.worlds:
            world.check()
        first, second = (world.picture() for world in self.worlds)
        for key, value in first.items():
            assert value == second[key], key

    def teardown(self) -> None:
        if hasattr(self, "worlds"):
            for world in self.worlds:
                world.close()

    # -- submitting --------------------------------------------------------------------------------

    @rule(script=BODIES)
    def submit(self, script: Any) -> None:
        self.both("submit", script, "argument")

    @rule(delay=DELAYS, script=BODIES)
    def submit_after(self, delay: Any, script: Any) -> None:
        self.both("submit_after", delay, script)

    @rule(offset_ns=OFFSETS_NS, script=BODIES)
    def submit_from_now(self, offset_ns: int, script: Any) -> None:
        self.both("submit_from_now", offset_ns, script)

    @rule(scripts=st.lists(BODIES, max_size=4), delay=DELAYS)
    def submit_many(self, scripts: Any, delay: Any) -> None:
        self.both("submit_many", scripts, delay)

    @rule(delays=st.lists(DELAYS, min_size=3, max_size=8), script=BODIES)
    def submit_spread(self, delays: Any, script: Any) -> None:
        self.both("submit_spread", delays, script)

    @rule(name=st.sampled_from(["poll", "", None, 1]), delay=DELAYS, script=BODIES)
    def submit_named(self, name: Any, delay: Any, script: Any) -> None:
        self.both("submit_named", name, delay, script)

    @rule(
        wrong=st.one_of(
            action("submit_after", ODD_DELAYS),
            action("submit_at_ns", ODD_DUES),
            action("submit_many", st.just([(), ()]), ODD_DELAYS),
            action("submit_named", st.just("odd"), ODD_DELAYS),
            action("submit_wrong", st.sampled_from([None, 1, "fn"])),
            action("map", st.lists(st.integers(), max_size=7)),
        )
    )
    def submit_odd(self, wrong: Any) -> None:
        self.both(*wrong)

    # -- changing ----------------------------------------------------------------------------------

    @rule(index=INDEXES, how=st.sampled_from(["cancel", "cancel_by_scheduler"]))
    def cancel(self, index: int, how: str) -> None:
        self.both(how, index)

    @rule(task_id=st.one_of(IDS, ODD_IDS))
    def cancel_id(self, task_id: Any) -> None:
        self.both("cancel_id", task_id)

    @rule(indexes=st.lists(INDEXES, max_size=3), ids=st.lists(st.one_of(IDS, ODD_IDS), max_size=2))
    def cancel_many(self, indexes: Any, ids: Any) -> None:
        self.both("cancel_many", indexes, ids)

    @rule(index=INDEXES, delay=st.one_of(DELAYS, ODD_DELAYS))
    def reschedule(self, index: int, delay: Any) -> None:
        self.both("reschedule", index, delay)

    @rule(index=INDEXES, then=CALLBACKS)
    def add_callback(self, index: int, then: Any) -> None:
        self.both("callback", index, then)

    # -- time --------------------------------------------------------------------------------------

    @rule(seconds=DELAYS)
    def advance(self, seconds: Any) -> None:
        self.both("advance", seconds)

    @rule(odd=st.one_of(action("advance", ODD_DELAYS), action("advance_to_ns", ODD_DUES)))
    @precondition(lambda self: self.count > SHUTDOWN_AFTER_STEPS)
    def advance_oddly(self, odd: Any) -> None:
        self.both(*odd)

    @rule()
    def tick(self) -> None:
        self.both("tick")

    @rule()
    def run_the_next(self) -> None:
        self.both("advance_to_next")
        self.both("tick")

    # -- asking ------------------------------------------------------------------------------------

    @rule(
        question=st.one_of(
            action("get", st.one_of(IDS, ODD_IDS)),
            action("view", st.one_of(IDS, ODD_IDS)),
            action("tasks", st.sampled_from([None, *TaskState, 0, "QUEUED"])),
            action("wait", INDEXES),
        )
    )
    def ask(self, question: Any) -> None:
        self.both(*question)

    # -- ending ------------------------------------------------------------------------------------

    @rule(how=RARE, inside=st.booleans())
    @precondition(lambda self: self.count > SHUTDOWN_AFTER_STEPS)
    def end(self, how: Any, inside: bool) -> None:
        if inside:
            self.both("submit", (how,))
        else:
            self.both(*how)


TestEngines = Engines.TestCase
TestEngines.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize=True,
    database=None,
    deadline=None,
    # Explaining a failure traces every line and takes minutes.
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
