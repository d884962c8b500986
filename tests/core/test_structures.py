"""The deadline heap, the task table and the admission counter alone, on both engines.

A missing compiled structure fails these tests; it never skips them.
"""

import importlib
import random

import pytest

from duepool import TaskState

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = map(int, TaskState)
MAX_NS = 2**63 - 1

HEAP_STEPS = 6_000


@pytest.fixture(params=["_core", "_reference"], ids=["cython", "python"])
def structure(request):
    """Imports one structure module of the engine under test."""
    return lambda name: importlib.import_module(f"duepool.{request.param}.{name}")


@pytest.fixture
def heap(structure):
    """An empty heap."""
    return structure("heap").DeadlineHeap()


@pytest.fixture
def new_table(structure):
    """Makes task tables."""
    return structure("table").TaskTable


@pytest.fixture
def table(new_table):
    """A table that remembers the last three ended tasks."""
    return new_table(3)


@pytest.fixture
def new_admission(structure):
    """Makes admission counters."""
    return structure("admission").Admission


def drain(heap):
    """Everything, in the order in which the heap gives it."""
    out = []
    while len(heap):
        head = heap.peek()
        assert heap.pop() == head
        heap.check()
        out.append(head)
    return out


# -- the heap -------------------------------------------------------------------------------------


def test_an_empty_heap(heap):
    assert len(heap) == 0
    assert heap.peek() is None
    assert heap.ids() == []
    assert 1 not in heap
    assert not heap.remove(1)
    assert not heap.reschedule(1, 5)
    with pytest.raises(IndexError):
        heap.pop()
    heap.check()


def test_c01_equal_due_times_leave_in_order_of_ids(heap):
    ids = list(range(1, 1001))
    random.Random(1).shuffle(ids)
    for number in ids:
        heap.push(7, number)
    for number in range(3, 1001, 3):
        assert heap.remove(number)
    heap.check()
    assert drain(heap) == [(7, number) for number in range(1, 1001) if number % 3]


def test_due_time_goes_before_id(heap):
    for due, number in ((30, 1), (10, 3), (20, 2), (10, 4)):
        heap.push(due, number)
    assert drain(heap) == [(10, 3), (10, 4), (20, 2), (30, 1)]


def test_a_number_that_is_present_is_refused(heap):
    heap.push(5, 1)
    heap.push(6, 2)
    for due in (4, 5, 7):
        with pytest.raises(ValueError):
            heap.push(due, 1)
    heap.check()
    assert drain(heap) == [(5, 1), (6, 2)]
    heap.push(9, 1)
    assert heap.peek() == (9, 1)


@pytest.mark.parametrize("size", [1, 2, 5, 6, 21, 22, 300])
def test_removing_from_each_place(heap, size):
    numbers = list(range(1, size + 1))
    for victim in numbers:
        for number in numbers:
            heap.push((number * 37) % 11, number)
        assert victim in heap
        assert heap.remove(victim)
        assert victim not in heap
        assert not heap.remove(victim)
        heap.check()
        left = sorted(heap.ids())
        assert left == [number for number in numbers if number != victim]
        if size > 30 and victim % 40:
            for number in left:
                heap.remove(number)
        else:
            assert drain(heap) == sorted(((n * 37) % 11, n) for n in left)


def test_c02_removing_one_of_two_equals_leaves_the_other(heap):
    for victim, survivor in ((1, 2), (2, 1)):
        heap.push(50, 1)
        heap.push(50, 2)
        assert heap.remove(victim)
        assert drain(heap) == [(50, survivor)]


def test_rescheduling_in_place(heap):
    for number in range(1, 101):
        heap.push(number * 10, number)
    assert heap.reschedule(100, 5)
    assert heap.peek() == (5, 100)
    assert heap.reschedule(100, 10)  # a tie: the smaller id goes first
    assert heap.peek() == (10, 1)
    assert heap.reschedule(1, 2000)
    assert heap.reschedule(50, 500)  # where it is
    assert not heap.reschedule(101, 1)
    assert len(heap) == 100
    heap.check()
    left = drain(heap)
    assert left[0] == (10, 100)
    assert left[-1] == (2000, 1)
    assert left == sorted(left)


def test_the_ends_of_time(heap):
    for number, due in enumerate((MAX_NS, 0, MAX_NS - 1, MAX_NS, 1), 1):
        heap.push(due, number)
    assert drain(heap) == [(0, 2), (1, 5), (MAX_NS - 1, 3), (MAX_NS, 1), (MAX_NS, 4)]


def test_a_million_removed_timers_leave_nothing(heap):
    # The kind of C25: the size follows the live entries, not the ones ever made.
    for number in range(1, 101):
        heap.push(10**6, number)
    for number in range(101, 20_101):
        heap.push(3600, number)
        assert heap.remove(number)
        assert len(heap) == 100
    heap.check()
    assert sorted(heap.ids()) == list(range(1, 101))


@pytest.mark.parametrize("spread", [3, 10**12])
def test_against_a_sorted_list(heap, spread):
    rng = random.Random(spread)
    model = {}
    fresh = 0
    for step in range(HEAP_STEPS):
        roll = rng.random()
        number = rng.choice(list(model)) if model and roll > 0.5 and step % 7 else fresh + 9
        if roll < 0.45:
            fresh += 1
            model[fresh] = rng.randrange(spread)
            heap.push(model[fresh], fresh)
        elif roll < 0.6:
            assert heap.remove(number) == (number in model)
            model.pop(number, None)
        elif roll < 0.8:
            due = rng.randrange(spread)
            assert heap.reschedule(number, due) == (number in model)
            if number in model:
                model[number] = due
        elif model:
            first = min((due, number) for number, due in model.items())
            assert heap.pop() == first
            del model[first[1]]
        if step % 200 == 0:
            heap.check()
            assert sorted(heap.ids()) == sorted(model)
    assert len(heap) == len(model)
    assert drain(heap) == sorted((due, number) for number, due in model.items())


# -- the table ------------------------------------------------------------------------------------


def bring_to(table, state):
    """A new task in ``state``; returns its id."""
    number = table.add(100, 10)
    if state == CANCELLED:
        table.cancel_queued(number, 20)
    elif state != QUEUED:
        table.claim(number, 110, 0)
        if state == CANCEL_REQUESTED:
            assert table.request(number)
        elif state != RUNNING:
            table.finish(number, state, 120)
    return number


def picture(table):
    """Every observable of a table."""
    unfinished = table.unfinished()
    return (
        table.counts(),
        unfinished,
        [table.view(number) for number in unfinished],
        table.finished_since(0),
    )


def test_ids_are_one_two_three(table):
    assert [table.add(due, 0) for due in (9, 1, 5)] == [1, 2, 3]
    table.cancel_queued(2, 0)
    assert table.add(0, 0) == 4
    assert table.unfinished() == [1, 3, 4]


def test_a_life_from_queue_to_success(table):
    number = table.add(100, 10)
    assert table.state(number) == QUEUED
    assert table.view(number) == (1, QUEUED, None, 100, 10, None, None)
    table.claim(number, 130, 2)
    assert table.state(number) == RUNNING
    assert table.view(number) == (1, RUNNING, 2, 100, 10, 130, None)
    table.finish(number, SUCCEEDED, 170)
    assert table.state(number) == SUCCEEDED
    assert table.view(number) == (1, SUCCEEDED, 2, 100, 10, 130, 170)
    assert table.unfinished() == []


def test_the_ticking_thread_is_worker_minus_one(table):
    number = table.add(0, 0)
    table.claim(number, 0, -1)
    assert table.view(number) == (1, RUNNING, -1, 0, 0, 0, None)


def test_a_request_is_made_once(table):
    number = bring_to(table, RUNNING)
    assert table.request(number) is True
    assert table.state(number) == CANCEL_REQUESTED
    before = picture(table)
    assert table.request(number) is False
    assert picture(table) == before
    table.finish(number, CANCELLED, 150)
    assert table.view(number) == (1, CANCELLED, 0, 100, 10, 110, 150)


def test_a_task_that_never_started_has_no_worker_and_no_start(table):
    number = bring_to(table, CANCELLED)
    assert table.view(number) == (1, CANCELLED, None, 100, 10, None, 20)


STEPS = {
    "claim": (lambda table, number: table.claim(number, 200, 1), {QUEUED}),
    "request": (lambda table, number: table.request(number), {RUNNING, CANCEL_REQUESTED}),
    "succeed": (lambda table, number: table.finish(number, SUCCEEDED, 200), {RUNNING}),
    "fail": (lambda table, number: table.finish(number, FAILED, 200), {RUNNING}),
    "end": (lambda table, number: table.finish(number, CANCELLED, 200), {CANCEL_REQUESTED}),
    "cancel": (lambda table, number: table.cancel_queued(number, 200), {QUEUED}),
    **{
        f"finish_as_{state}": (lambda table, number, s=state: table.finish(number, s, 200), set())
        for state in (QUEUED, RUNNING, CANCEL_REQUESTED, 6, -1)
    },
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", range(6))
def test_illegal_transitions_change_nothing(table, state, step):
    bring_to(table, RUNNING)
    number = bring_to(table, state)
    take, legal = STEPS[step]
    before = picture(table)
    if state in legal:
        take(table, number)
        return
    with pytest.raises(ValueError):
        take(table, number)
    assert picture(table) == before
    assert table.state(number) == state


@pytest.mark.parametrize("number", [0, -1, 3, 2**40])
def test_an_id_that_was_never_issued(table, number):
    table.add(0, 0)
    table.add(0, 0)
    before = picture(table)
    for ask in (table.state, table.view):
        with pytest.raises(KeyError):
            ask(number)
    for take, _ in STEPS.values():
        with pytest.raises((KeyError, ValueError)):
            take(table, number)
    assert picture(table) == before


def test_the_counts(table):
    assert table.counts() == (0, 0, 0, 0, 0, 0, 0, 0)
    for state in range(6):
        for _ in range(state + 1):
            bring_to(table, state)
            counts = table.counts()
            assert sum(counts[:6]) == counts[6]
    assert table.counts()[:7] == (1, 2, 3, 4, 5, 6, 21)


def test_max_queued_is_a_high_water_mark(table):
    numbers = [table.add(0, 0) for _ in range(5)]
    for number in numbers[:3]:
        table.claim(number, 0, 0)
    table.cancel_queued(4, 0)
    assert table.counts()[0] == 1
    assert table.counts()[7] == 5
    for _ in range(5):
        table.add(0, 0)
    assert table.counts()[7] == 6


@pytest.mark.parametrize("history", [0, 1, 2, 3, 7, 50])
def test_the_history_is_a_ring(new_table, history):
    table = new_table(history)
    numbers = [table.add(number, 0) for number in range(20)]
    ended = []
    for number in sorted(numbers, key=lambda n: (n * 7) % 20):
        table.claim(number, 30, 0)
        table.finish(number, SUCCEEDED if number % 2 else FAILED, 40 + number)
        ended.append(number)
        remembered = ended[-history:] if history else []
        assert [view[0] for view in table.finished_since(0)] == remembered
        for old in ended:
            if old in remembered:
                state = SUCCEEDED if old % 2 else FAILED
                assert table.view(old) == (old, state, 0, old - 1, 0, 30, 40 + old)
            else:
                with pytest.raises(KeyError):
                    table.view(old)
                with pytest.raises(KeyError):
                    table.state(old)


def test_finished_since_a_mark(new_table):
    table = new_table(4)
    for _ in range(6):
        bring_to(table, SUCCEEDED)
    for mark, ids in ((0, [3, 4, 5, 6]), (2, [3, 4, 5, 6]), (3, [4, 5, 6]), (5, [6]), (6, [])):
        assert [view[0] for view in table.finished_since(mark)] == ids
        assert all(view == table.view(view[0]) for view in table.finished_since(mark))
    bring_to(table, CANCELLED)
    assert [view[1] for view in table.finished_since(5)] == [SUCCEEDED, CANCELLED]


# -- the admission counter ------------------------------------------------------------------------


def test_admission_up_to_the_capacity(new_admission):
    admission = new_admission(3)
    assert (admission.capacity, admission.queued, admission.rejected) == (3, 0, 0)
    assert [admission.try_admit() for _ in range(5)] == [0, 0, 0, 2, 2]
    assert (admission.queued, admission.rejected) == (3, 2)
    admission.release()
    assert admission.try_admit() == 0
    assert admission.try_admit() == 2
    assert (admission.queued, admission.rejected) == (3, 3)


def test_many_are_admitted_all_or_none(new_admission):
    admission = new_admission(10)
    assert admission.try_admit(7) == 0
    assert admission.try_admit(4) == 2
    assert (admission.queued, admission.rejected) == (7, 4)
    assert admission.try_admit(3) == 0
    assert admission.try_admit(0) == 0
    admission.release(10)
    assert admission.try_admit(11) == 2
    assert (admission.queued, admission.rejected) == (0, 15)


def test_no_capacity_is_no_bound(new_admission):
    admission = new_admission(None)
    assert admission.capacity is None
    assert admission.try_admit(10**12) == 0
    assert admission.try_admit(10**12) == 0
    assert (admission.queued, admission.rejected) == (2 * 10**12, 0)


def test_c26_a_slot_is_never_given_back_twice(new_admission):
    admission = new_admission(2)
    admission.try_admit(2)
    admission.release(2)
    for k in (1, 2):
        with pytest.raises(ValueError):
            admission.release(k)
    assert admission.queued == 0
    admission.try_admit()
    with pytest.raises(ValueError):
        admission.release(2)
    assert admission.queued == 1


def test_closed_goes_before_full_and_stays(new_admission):
    admission = new_admission(1)
    admission.try_admit()
    assert not admission.closed
    admission.close()
    admission.close()
    assert admission.closed
    assert admission.try_admit() == 1
    assert admission.try_admit(3) == 1
    admission.release()
    assert admission.try_admit() == 1
    assert (admission.queued, admission.rejected) == (0, 5)
