"""The record of one task: what the heap, the table and the engine know about it.

Every field is guarded by the monitor of the engine, with these exceptions: ``id``, ``name``,
``submitted_ns``, ``tenant`` and ``slotless`` never change after admission; ``state`` may be read
without the monitor (it is stored after everything that belongs to it); ``payload`` belongs to the
one who claimed the task.
"""

from _thread import LockType
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from duepool._outcome import Failure

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = range(6)
STATE_NAMES = ("QUEUED", "RUNNING", "CANCEL_REQUESTED", "SUCCEEDED", "FAILED", "CANCELLED")

NOT_STARTED = -2  # worker: not claimed yet; -1 is the caller of tick(), 0 and up a worker

# Called with the task; a lock is released instead, before any callable is called.
Watcher: TypeAlias = Callable[[Any], object] | LockType


class Handshake(Protocol):
    """What a face puts around the terminal transition of a task that others wait on.

    ``acquire`` and ``release`` are the methods of a lock object, taken before the monitor.
    """

    acquire: Any
    release: Any

    def finished(self, task: Any, again: bool = False) -> object:
        """Called while the lock is held, after the terminal transition; ``again``: an earlier call
        was cut short."""


class Record:
    """One task. All instants are nanoseconds on the scheduler's clock."""

    __slots__ = (
        "due_ns",
        "failure",
        "finished_ns",
        "handshake",
        "holds_slot",
        "id",
        "name",
        "payload",
        "place",
        "reason",
        "request_watchers",
        "slotless",
        "started_ns",
        "state",
        "submitted_ns",
        "task",
        "tenant",
        "value",
        "waiters",
        "watchers",
        "worker",
    )

    def __init__(self, due_ns: int, submitted_ns: int, name: str | None = None) -> None:
        self.id = 0  # 0: not admitted yet
        self.due_ns = due_ns
        self.submitted_ns = submitted_ns
        self.started_ns = 0  # meaningful once worker != NOT_STARTED
        self.finished_ns = 0  # meaningful in a terminal state
        self.state = QUEUED
        self.worker = NOT_STARTED
        self.reason = 0  # index into REASONS; 0: not cancelled
        self.place = -1  # index in the heap; -1: not in it
        self.holds_slot = False  # counts against the capacity, and its tenant's quota
        self.tenant = -1  # index of a quota; -1: none
        self.slotless = False  # a job's run: its job holds a place for it
        self.waiters = 0  # workers counted as blocked because they wait for this task
        self.name = name
        self.task: Any = None  # the handle, until the task has ended
        self.payload: tuple[Any, ...] | None = None  # fn, args, kwargs, context
        self.value: Any = None  # what the body returned, in SUCCEEDED
        self.failure: Failure | None = None
        self.handshake: Handshake | None = None  # once set it stays
        self.watchers: list[Watcher] | None = None
        self.request_watchers: list[Watcher] | None = None
