"""What a shutdown reports: how many tasks ended how, and which."""

from dataclasses import dataclass
from typing import Any

from ._values import Counts, TaskState, TaskView


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What happened since the scheduler was first asked to shut down.

    Counts: ``succeeded``, ``failed``, ``cancelled`` since then; ``running`` (asked to stop or not)
    and ``queued`` when the report was made. Views: ``finished`` (SUCCEEDED and FAILED) and
    ``cancelled_tasks`` in the order in which they ended, as far as the history reaches, and
    ``running_tasks``, at most ``history`` each. ``complete``: nothing is queued or running.
    """

    succeeded: int
    failed: int
    cancelled: int
    running: int
    queued: int
    finished: tuple[TaskView, ...]
    cancelled_tasks: tuple[TaskView, ...]
    running_tasks: tuple[TaskView, ...]

    @property
    def complete(self) -> bool:
        """True when every accepted task has ended."""
        return not self.running and not self.queued


def report_since(engine: Any, before: Counts) -> DrainReport:
    """The report on ``engine`` since its counters were ``before``."""
    counts = engine.counts()
    ended = engine.finished_since(before.succeeded + before.failed + before.cancelled)
    running: list[TaskView] = []
    for state in (TaskState.RUNNING, TaskState.CANCEL_REQUESTED):
        for task in engine.tasks(state)[: engine.config.history]:
            view = engine.view_of(task)
            if not view.state.terminal:
                running.append(view)
    return DrainReport(
        succeeded=counts.succeeded - before.succeeded,
        failed=counts.failed - before.failed,
        cancelled=counts.cancelled - before.cancelled,
        running=counts.running + counts.cancel_requested,
        queued=counts.queued,
        finished=tuple(v for v in ended if v.state != TaskState.CANCELLED),
        cancelled_tasks=tuple(v for v in ended if v.state == TaskState.CANCELLED),
        running_tasks=tuple(running[: engine.config.history]),
    )
