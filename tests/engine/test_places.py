"""Places of the capacity and of quotas: who holds one, who gives it back, who waits in line."""

import threading

import pytest

from duepool import QueueFull
from duepool._values import (
    AHEAD,
    CANCEL_ALL,
    CANCEL_LATER,
    CLOSED,
    DROPPED,
    ENTER,
    FULL,
    HERE,
    QUOTA_FULL,
    REJECT,
    ROOM,
    RUN,
    TRY,
)

from .support import CANCELLED, RUNNING, SOON, SUCCEEDED, RoomDouble, S, elsewhere

FULL_ANSWERS = (FULL, QUOTA_FULL)


# -- places of jobs -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [ENTER, TRY, AHEAD])
def test_a_job_holds_one_place_of_the_capacity_until_it_gives_it_back(bench, mode):
    b = bench(capacity=2)
    assert b.core.take_slot(-1, mode) == ROOM
    assert b.fits() == 1
    b.enter(after=1)
    with pytest.raises(QueueFull):
        b.enter()
    b.core.free_slot()
    assert b.fits() == 1
    assert b.core.counts().admitted == 1
    assert b.core.counts().queued == 1  # a place is no task


@pytest.mark.parametrize(("mode", "counted"), [(ENTER, 1), (TRY, 0), (AHEAD, 0)])
def test_a_refused_place_is_counted_in_the_ordinary_mode_only(bench, mode, counted):
    b = bench(capacity=2, quotas=(1,))
    assert b.core.take_slot(0, mode) == ROOM
    assert b.core.take_slot(0, mode) in FULL_ANSWERS
    assert b.core.counts().rejected == counted
    assert b.core.take_slot(-1, mode) == ROOM
    assert b.core.take_slot(-1, mode) == FULL
    assert b.core.counts().rejected == 2 * counted
    b.core.free_slot(0)
    b.core.close(0)
    assert b.core.take_slot(0, mode) == CLOSED
    assert b.core.counts().rejected == 3 * counted


def test_places_are_taken_and_given_back_by_many_threads_at_once(bench):
    b = bench(capacity=3, quotas=(2,))
    held, most, turns = [0], [0], 300

    def use(tenant):
        for _ in range(turns):
            if b.core.take_slot(tenant, TRY) == ROOM:
                held.append(1)
                most[0] = max(most[0], sum(held))
                held.append(-1)
                b.core.free_slot(tenant)

    threads = [threading.Thread(target=use, args=(n % 2 - 1,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    assert 0 < most[0] <= 3
    assert (b.fits(), b.fits(0)) == (3, 2)


# -- quotas ---------------------------------------------------------------------------------------


def test_a_quota_bounds_its_tenant_and_nobody_else(bench):
    b = bench(capacity=9, quotas=(1, 2))
    b.enter(after=1, tenant=0)
    with pytest.raises(QueueFull, match=r"'red'.*quota is 1"):
        b.enter(after=1, tenant=0)
    assert b.enter(mode=TRY, tenant=0) is None
    assert [t.id for t in b.many(2, tenant=1)] == [2, 3]
    with pytest.raises(QueueFull, match=r"'blue'.*quota is 2"):
        b.many(2, tenant=1)
    assert len(b.many(6)) == 6
    counts = b.core.counts()
    assert (counts.queued, counts.rejected) == (9, 3)


def test_within_its_quota_a_tenant_still_needs_the_capacity(bench):
    b = bench(capacity=3, quotas=(2, 2))
    b.many(2, after=1, tenant=0)
    b.enter(after=1)
    assert b.core.room_for(1, 1) == FULL
    with pytest.raises(QueueFull, match="capacity is 3"):
        b.enter(tenant=1)
    assert b.core.room_for(1, 0) in FULL_ANSWERS


def test_a_quota_larger_than_the_capacity_bounds_nothing(bench):
    b = bench(capacity=1, quotas=(5,))
    assert b.fits(0) == 1
    b = bench(quotas=(5,))
    assert (b.fits(0), b.core.room_for(10**6)) == (5, ROOM)


def test_room_for_tells_which_bound_it_is(bench):
    b = bench(capacity=3, quotas=(2,))
    assert [b.core.room_for(k, 0) for k in (1, 2, 3, 4)] == [ROOM, ROOM, QUOTA_FULL, FULL]
    assert [b.core.room_for(k) for k in (3, 4)] == [ROOM, FULL]
    b.core.close(0)
    assert b.core.room_for(1, 0) == b.core.room_for(1) == CLOSED


# -- given back exactly ---------------------------------------------------------------------------


def leave_by_claim(b, task):
    b.clock.advance(9)
    assert b.core.tick() == 1


def leave_by_move_and_claim(b, task):
    assert b.core.move_to(task, 0)
    assert b.core.tick() == 1


def leave_by_failing(b, task):
    b.core.fail(ValueError("of an initializer"))


WAYS = {
    "claim": leave_by_claim,
    "move": leave_by_move_and_claim,
    "cancel": lambda b, task: task.cancel(),
    "cancel_twice": lambda b, task: [task.cancel(), b.core.cancel(task, 5)],
    "cancel_id": lambda b, task: b.core.cancel_id(task.id),
    "cancel_only_queued": lambda b, task: b.core.cancel_only_queued(task, 3),
    "cancel_queued": lambda b, task: b.core.cancel_queued(None),
    "cancel_later": lambda b, task: b.core.cancel_queued(1 * S),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tenant", [-1, 0, 1])
def test_a_place_comes_back_once_however_a_task_leaves_the_queue(bench, way, tenant):
    b = bench(capacity=3, quotas=(2, 1))
    for _ in range(3):
        before = b.fits(), b.fits(0), b.fits(1)
        assert before == (3, 2, 1)
        task = b.enter(after=9, tenant=tenant)
        assert b.fits() == 2
        assert b.fits(0) == (1 if tenant == 0 else 2)
        assert b.fits(1) == (0 if tenant == 1 else 1)
        WAYS[way](b, task)
        assert (b.fits(), b.fits(0), b.fits(1)) == before
        b.check()


def test_a_running_body_holds_no_place(bench):
    b = bench(capacity=1, quotas=(1,))
    seen = []

    def body():
        seen.append((b.fits(0), b.enter(after=1, tenant=0).id, b.fits(0)))

    b.enter(body, tenant=0)
    assert b.core.tick() == 1
    assert seen == [(1, 2, 0)]


# -- in line --------------------------------------------------------------------------------------


def refused(b, mode, tenant=-1):
    """Is a submission refused in this mode? What enters is cancelled again."""
    if mode in (ENTER, REJECT):
        try:
            b.enter(after=1, mode=mode, tenant=tenant).cancel()
        except QueueFull:
            return True
        return False
    task = b.enter(after=1, mode=mode, tenant=tenant)
    if task is None:
        return True
    task.cancel()
    return False


@pytest.mark.parametrize("mode", [ENTER, TRY, REJECT])
def test_who_comes_later_finds_it_full_while_somebody_waits(bench, mode):
    b = bench(capacity=5, quotas=(2, 2))
    b.core.enter_line(-1)
    # The capacity is what everybody needs.
    assert [refused(b, mode, tenant) for tenant in (-1, 0, 1)] == [True] * 3
    b.core.enter_line(-1)
    b.core.leave_line(-1)
    assert refused(b, mode)
    b.core.leave_line(-1)
    assert [refused(b, mode, tenant) for tenant in (-1, 0, 1)] == [False] * 3
    # The line for a quota is its tenant's alone.
    b.core.enter_line(0)
    assert [refused(b, mode, tenant) for tenant in (-1, 0, 1)] == [False, True, False]
    b.core.leave_line(0)
    assert not refused(b, mode, 0)


def test_whoever_is_at_the_head_of_the_line_goes_ahead(bench):
    b = bench(capacity=2, quotas=(1,))
    b.core.enter_line(-1)
    b.core.enter_line(0)
    assert [b.core.room_for(1, tenant) for tenant in (-1, 0)] == [ROOM] * 2
    assert b.enter(after=1, mode=AHEAD, tenant=0).id == 1
    assert b.enter(after=1, mode=AHEAD, tenant=0) is None
    assert b.enter(after=1, mode=AHEAD).id == 2
    assert b.enter(after=1, mode=AHEAD) is None
    assert b.core.take_slot(-1, AHEAD) == FULL
    b.core.leave_line(-1)
    b.core.leave_line(0)


def test_a_job_stands_in_the_same_line(bench):
    b = bench(capacity=5, quotas=(2,))
    b.core.enter_line(0)
    assert b.core.take_slot(0) in FULL_ANSWERS
    assert b.core.take_slot(0, TRY) in FULL_ANSWERS
    assert b.core.take_slot(-1) == ROOM
    assert b.core.take_slot(0, AHEAD) == ROOM
    b.core.leave_line(0)


def test_a_full_queue_asks_the_policy_also_for_those_behind_a_line(bench):
    asked = []
    b = bench(capacity=5, overload=lambda core, submission: asked.append(submission[5]))
    b.core.enter_line(-1)
    assert b.enter() is None
    assert asked == [-1]
    b.core.leave_line(-1)


@pytest.mark.parametrize("mode", [RUN, HERE, DROPPED])
def test_what_needs_no_place_minds_no_line(bench, mode):
    b = bench(capacity=1, quotas=(1,))
    b.core.enter_line(-1)
    b.core.enter_line(0)
    assert b.enter(mode=mode, tenant=0).id == 1
    b.core.leave_line(-1)
    b.core.leave_line(0)


# -- the room is told -----------------------------------------------------------------------------


TOLD_WAYS = {
    **WAYS,
    "free_slot": lambda b, task: b.core.free_slot(),
    "close": lambda b, task: b.core.close(0),
    "close_all": lambda b, task: b.core.close(CANCEL_ALL),
    "close_later": lambda b, task: b.core.close(CANCEL_LATER),
    "fail": leave_by_failing,
}


@pytest.mark.parametrize("line", [-1, 0])
@pytest.mark.parametrize("way", TOLD_WAYS)
def test_the_room_is_told_of_every_place_while_somebody_waits(bench, way, line):
    room = RoomDouble()
    b = bench(capacity=3, quotas=(2,), room=room)
    room.core = b.core  # looks from another thread: no lock may be held
    assert b.core.take_slot() == ROOM
    b.enter(after=9)
    nobody = b.enter(after=9)
    nobody.cancel()
    assert room.calls == 0  # nobody waits
    b.core.enter_line(line)
    task = b.core.oldest()
    TOLD_WAYS[way](b, task)
    assert room.calls >= 1
    b.core.leave_line(line)


def test_a_worker_tells_the_room_before_the_body_runs(bench):
    room = RoomDouble()
    b = bench(1, capacity=1, room=room)
    b.enter(after=9)
    b.core.enter_line(-1)
    called = []

    def body():
        called.append(room.calls)
        return b.fits()

    task = b.enter(body, mode=AHEAD)
    assert task is None
    assert b.core.oldest().cancel()
    before = room.calls
    assert before == 1
    task = b.enter(body, mode=AHEAD)
    assert task.result(SOON) == 1
    assert called == [before + 1]
    b.core.leave_line(-1)


def test_who_waits_finds_room_when_he_is_told(bench):
    found = []

    class Room:
        def notify(self):
            found.append((b.core.room_for(1), b.core.room_for(1, 0)))

    b = bench(capacity=1, quotas=(1,), room=Room())
    task = b.enter(after=1, tenant=0)
    b.core.enter_line(0)
    task.cancel()
    assert found == [(ROOM, ROOM)]
    b.core.leave_line(0)


@pytest.mark.parametrize("way", ["cancel", "free_slot", "close"])
def test_a_ctrl_c_while_the_room_is_told_is_raised_when_it_is_told(bench, way):
    room = RoomDouble()
    b = bench(capacity=3, quotas=(2,), room=room)
    assert b.core.take_slot() == ROOM
    told = []
    task = b.enter(after=9)
    task.add_done_callback(told.append)
    b.core.enter_line(-1)
    room.raises = [KeyboardInterrupt("once")]
    with pytest.raises(KeyboardInterrupt, match="once"):
        TOLD_WAYS[way](b, task)
    assert room.calls == 2  # begun anew
    b.core.leave_line(-1)
    if way == "cancel":
        assert told == [task]
        assert task.state == CANCELLED


def test_a_ctrl_c_while_the_room_is_told_of_a_claim_spares_the_body(bench):
    room = RoomDouble()
    b = bench(capacity=3, room=room)
    task, rest = b.enter(divmod, 7, 2), b.enter()
    b.core.enter_line(-1)
    room.raises = [KeyboardInterrupt("once")]
    with pytest.raises(KeyboardInterrupt, match="once"):
        b.core.tick()
    assert task.state == SUCCEEDED
    assert task.result() == (3, 1)
    assert room.calls == 2
    assert not rest.done()
    b.core.leave_line(-1)
    assert b.core.tick() == 1


def test_what_the_room_raises_stops_no_worker(bench):
    room = RoomDouble()
    b = bench(1, capacity=9, room=room)
    b.core.enter_line(-1)
    room.raises = [KeyboardInterrupt(), ValueError()]
    first = b.enter(divmod, 7, 2, mode=AHEAD)
    second = b.enter(divmod, 9, 2, mode=AHEAD)
    assert first.result(SOON) == (3, 1)
    assert second.result(SOON) == (4, 1)
    b.core.leave_line(-1)


def test_the_engine_needs_no_room(bench):
    b = bench(capacity=1)
    b.core.enter_line(-1)
    assert b.enter(mode=AHEAD).cancel()
    assert b.core.close(0) > 0
    b.core.leave_line(-1)


def test_a_line_may_be_entered_and_left_by_any_thread(bench):
    b = bench(capacity=1)
    elsewhere(b.core.enter_line, -1)
    assert b.enter(mode=TRY) is None
    elsewhere(b.core.leave_line, -1)
    assert b.enter(mode=TRY).state != RUNNING
