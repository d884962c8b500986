"""Both engines' heap, table and admission counter are driven with the same steps and compared.

The steps are those that an engine composes: admit, claim, cancel, ask, finish, reschedule, close;
and each structure is also asked for what it must refuse. Deterministic.
"""

import importlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

EXAMPLES = 250
STEPS = 60

RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = 1, 2, 3, 4, 5
MAX_NS = 2**63 - 1


class Structures:
    """Heap, table and counter of one engine, composed as the engine does."""

    def __init__(self, package, capacity, history):
        def of(name):
            return importlib.import_module(f"duepool.{package}.{name}")

        self.heap = of("heap").DeadlineHeap()
        self.table = of("table").TaskTable(history)
        self.admission = of("admission").Admission(capacity)

    def admit(self, dues, now):
        answer = self.admission.try_admit(len(dues))
        if answer:
            return answer
        ids = [self.table.add(due, now) for due in dues]
        for due, number in zip(dues, ids, strict=True):
            self.heap.push(due, number)
        return ids

    def claim(self, now, worker):
        head = self.heap.peek()
        if head is None or head[0] > now:
            return head
        taken = self.heap.pop()
        self.table.claim(taken[1], now, worker)
        self.admission.release()
        return taken

    def cancel(self, number, now):
        """As ``Task.cancel``: the state decides."""
        try:
            state = self.table.state(number)
        except KeyError:
            return "evicted"
        if state == 0:
            assert self.heap.remove(number)
            self.table.cancel_queued(number, now)
            self.admission.release()
            return True
        if state in (RUNNING, CANCEL_REQUESTED):
            return self.table.request(number)
        return state == CANCELLED

    def finish(self, number, state, now):
        return self.table.finish(number, state, now)

    def force(self, step, number, now):
        """A transition that may be illegal."""
        steps = {
            "claim": lambda: self.table.claim(number, now, 0),
            "request": lambda: self.table.request(number),
            "succeed": lambda: self.table.finish(number, SUCCEEDED, now),
            "fail": lambda: self.table.finish(number, FAILED, now),
            "end": lambda: self.table.finish(number, CANCELLED, now),
            "cancel": lambda: self.table.cancel_queued(number, now),
        }
        before = self.picture()
        try:
            steps[step]()
        except ValueError:
            assert self.picture() == before
            return "refused"
        raise AssertionError(f"{step} of {number} went through")

    def picture(self):
        """Every observable."""
        unfinished = self.table.unfinished()
        heap_ids = sorted(self.heap.ids())
        return {
            "head": self.heap.peek(),
            "size": len(self.heap),
            "heap": heap_ids,
            "unfinished": unfinished,
            "views": [self.table.view(number) for number in unfinished],
            "counts": tuple(self.table.counts()),
            "history": [tuple(view) for view in self.table.finished_since(0)],
            "queued": self.admission.queued,
            "rejected": self.admission.rejected,
            "closed": bool(self.admission.closed),
            "capacity": self.admission.capacity,
        }


DUES = st.one_of(
    st.integers(0, 20),  # many ties
    st.integers(0, 10**6),
    st.sampled_from([MAX_NS, MAX_NS - 1]),
)
PICK = st.integers(0, 10**6)  # taken modulo what there is


class BothEngines(RuleBasedStateMachine):
    """One step on each engine, then all that can be seen must be equal."""

    @initialize(
        capacity=st.one_of(st.none(), st.integers(1, 12)),
        history=st.sampled_from([0, 1, 2, 5, 100]),
    )
    def start(self, capacity, history):
        self.history = history
        self.pair = [Structures(name, capacity, history) for name in ("_core", "_reference")]
        self.now = 0

    def both(self, step):
        """Take a step on both engines; the common answer."""
        compiled, reference = (step(each) for each in self.pair)
        assert compiled == reference
        return reference

    def of_state(self, pick, *states):
        """One of the unfinished ids in one of the states, None if there is none."""
        table = self.pair[1].table
        ids = [number for number in table.unfinished() if table.state(number) in states]
        return ids[pick % len(ids)] if ids else None

    @rule(due=DUES)
    def admit(self, due):
        self.both(lambda each: each.admit([max(due, self.now)], self.now))

    @rule(dues=st.lists(DUES, max_size=8))
    def admit_many(self, dues):
        self.both(lambda each: each.admit([max(due, self.now) for due in dues], self.now))

    @rule(step=st.integers(1, 30))
    def advance(self, step):
        self.now += step

    @rule(worker=st.integers(-1, 3))
    def claim(self, worker):
        self.both(lambda each: each.claim(self.now, worker))

    @precondition(lambda self: self.pair[1].table.last_id)
    @rule(pick=PICK)
    def cancel_any(self, pick):
        number = 1 + pick % self.pair[1].table.last_id
        self.both(lambda each: each.cancel(number, self.now))

    @rule(pick=PICK)
    def cancel_a_queued_one(self, pick):
        number = self.of_state(pick, 0)
        if number is not None:
            assert self.both(lambda each: each.cancel(number, self.now)) is True

    @rule(pick=PICK, failed=st.booleans())
    def finish(self, pick, failed):
        number = self.of_state(pick, RUNNING, CANCEL_REQUESTED)
        if number is not None:
            asked = self.pair[1].table.state(number) == CANCEL_REQUESTED
            state = CANCELLED if asked else FAILED if failed else SUCCEEDED
            self.both(lambda each: each.finish(number, state, self.now))

    @rule(pick=PICK, due=DUES)
    def reschedule(self, pick, due):
        # The table keeps the due time of its own record: only the heap is moved here, and back.
        number = self.of_state(pick, 0)
        if number is None:
            return
        old = self.pair[1].table.view(number)[3]
        assert self.both(lambda each: each.heap.reschedule(number, max(due, self.now)))
        self.both(lambda each: (each.heap.check(), each.heap.peek()))
        assert self.both(lambda each: each.heap.reschedule(number, old))

    @rule(pick=PICK)
    def ask_for_absent_ones(self, pick):
        absent = self.pair[1].table.last_id + 1 + pick
        self.both(lambda each: (each.heap.remove(absent), each.heap.reschedule(absent, 1)))
        running = self.of_state(pick, RUNNING, CANCEL_REQUESTED)
        if running is not None:
            assert self.both(lambda each: each.heap.remove(running)) is False

    @rule(pick=PICK, mark=st.integers(0, 40))
    def look_back(self, pick, mark):
        self.both(lambda each: [tuple(view) for view in each.table.finished_since(mark)])

    @precondition(lambda self: self.pair[1].table.last_id)
    @rule(
        pick=PICK,
        step=st.sampled_from(["claim", "request", "succeed", "fail", "end", "cancel"]),
    )
    def force_an_illegal_step(self, pick, step):
        number = 1 + pick % self.pair[1].table.last_id
        state = self.pair[1].table.state(number) if number in self.known() else CANCELLED
        legal = {
            0: ("claim", "cancel"),
            RUNNING: ("request", "succeed", "fail"),
            CANCEL_REQUESTED: ("request", "end"),
        }
        if step not in legal.get(state, ()):
            self.both(lambda each: each.force(step, number, self.now))

    def known(self):
        table = self.pair[1].table
        return {*table.unfinished(), *(view[0] for view in table.finished_since(0))}

    @precondition(lambda self: self.pair[1].admission.queued == 0)
    @rule()
    def release_too_much(self):
        for each in self.pair:
            try:
                each.admission.release()
            except ValueError:
                continue
            raise AssertionError("released a slot that nobody held")

    @precondition(lambda self: self.pair[1].table.last_id > 10)
    @rule()
    def close(self):
        self.both(lambda each: each.admission.close())

    @invariant()
    def equal_and_whole(self):
        if not hasattr(self, "pair"):
            return
        picture = self.both(Structures.picture)
        for each in self.pair:
            each.heap.check()
        counts = picture["counts"]
        assert sum(counts[:6]) == counts[6]
        assert counts[0] == picture["size"] == picture["queued"] == len(picture["heap"])
        assert len(picture["unfinished"]) == sum(counts[:3])
        assert len(picture["history"]) == min(self.history, sum(counts[3:6]))
        if picture["capacity"] is not None:
            assert picture["queued"] <= picture["capacity"]
        if picture["heap"]:
            views = {view[0]: view for view in picture["views"]}
            assert picture["head"] == min((views[n][3], n) for n in picture["heap"])


BothEngines.TestCase.settings = settings(
    derandomize=True, max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None
)
TestBothEngines = BothEngines.TestCase
