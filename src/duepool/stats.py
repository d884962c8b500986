"""What a scheduler says about itself: counters and the lateness histogram."""

from dataclasses import dataclass

from ._values import Counts, bucket_upper_ns


@dataclass(frozen=True, slots=True)
class Histogram:
    """Lateness (start minus due) of all started tasks, in nanoseconds.

    The buckets grow with the value, 16 for each power of two, so that a percentile is at most
    1/16 above the true one and never below it; ``count``, ``total_ns`` and ``max_ns`` are exact.
    """

    count: int
    total_ns: int
    max_ns: int
    buckets: tuple[int, ...]

    @property
    def mean_ns(self) -> float:
        """The exact mean; 0.0 when nothing has started."""
        return self.total_ns / self.count if self.count else 0.0

    def percentile_ns(self, q: float) -> int:
        """An upper bound of the ``q``-quantile (0 <= q <= 1); 0 when nothing has started."""
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q must be between 0 and 1, got {q!r}")
        wanted = q * self.count
        seen = 0
        for index, number in enumerate(self.buckets):
            seen += number
            if number and seen >= wanted:
                return min(bucket_upper_ns(index), self.max_ns)
        return self.max_ns


@dataclass(frozen=True, slots=True)
class Stats:
    """A consistent snapshot of one scheduler's counters.

    ``queued``, ``running``, ``cancel_requested``: tasks in that state now. ``succeeded``,
    ``failed``, ``cancelled``: tasks that ended so. ``admitted`` is always the sum of those six.
    ``rejected``: refused submissions. ``jobs``: recurring jobs. ``max_queued``: the most that were
    ever queued at once. ``wakeups``: returns of idle workers from their wait. ``clock_errors``:
    failures of an injected clock that were bridged by its last known time.
    """

    queued: int
    running: int
    cancel_requested: int
    succeeded: int
    failed: int
    cancelled: int
    admitted: int
    rejected: int
    jobs: int
    max_queued: int
    wakeups: int
    clock_errors: int
    lateness: Histogram


def stats_of(counts: Counts, jobs: int) -> Stats:
    """The public snapshot of an engine's raw counters and its number of jobs."""
    used = len(counts.lateness_buckets)
    while used and not counts.lateness_buckets[used - 1]:
        used -= 1
    buckets = counts.lateness_buckets[:used]
    return Stats(
        queued=counts.queued,
        running=counts.running,
        cancel_requested=counts.cancel_requested,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
        admitted=counts.admitted,
        rejected=counts.rejected,
        jobs=jobs,
        max_queued=counts.max_queued,
        wakeups=counts.wakeups,
        clock_errors=counts.clock_errors,
        lateness=Histogram(
            count=sum(buckets),
            total_ns=counts.lateness_total_ns,
            max_ns=counts.lateness_max_ns,
            buckets=buckets,
        ),
    )
