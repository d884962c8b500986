"""Cron expressions in a zone: the library ``cronsim`` says which local times match, this module
which instants those are.

``cronsim`` is only asked about naive local times, where there are no changes of the clock. Where
the offset of the zone changes, two rules hold (those of Debian's cron):

- An expression with fixed times of day (neither its minute nor its hour field begins with ``*``)
  fires once for each matching local time: at the end of the gap when the time does not exist, and
  only the first time when it comes twice. Several times in one gap fire once.
- Any other expression fires whenever a local clock shows a matching time: in a gap never, in an
  hour that comes twice twice.

Instants are whole seconds since the Unix epoch. Costs: a match costs a few dozen microseconds; the
search of the library ends after 50 years, within some ten milliseconds.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_S = timedelta(seconds=1)

# Within so many seconds of an instant at most one change of a zone's offset is looked for, and no
# offset changes by more.
_DAY = 86_400


def zone_of(tz: Any) -> tzinfo:
    """A zone by its name, or the ``tzinfo`` itself."""
    if isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(
            f"tz must be the name of a zone or a tzinfo, not {type(tz).__name__} {tz!r}; "
            "for instance 'Europe/Berlin'"
        )
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"tz is {tz!r}, which is no known zone; give a name of the IANA database, such as "
            "'Europe/Berlin' or 'UTC' (a platform without that database needs the package tzdata)"
        ) from None


class Zone:
    """A zone as a function from instants to offsets; nothing else of a ``tzinfo`` is used."""

    def __init__(self, tz: tzinfo) -> None:
        self._tz = tz

    def offset(self, instant: int) -> int:
        """Local time minus UTC, in seconds, at an instant."""
        moment = (_EPOCH + instant * _S).astimezone(self._tz)
        return (moment.utcoffset() or timedelta()) // _S

    def change(self, low: int, high: int) -> int:
        """The first instant of another offset, when the one at ``high`` differs from ``low``'s."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def first(self, local: int) -> int:
        """When the clock first shows ``local`` (seconds of a naive clock), or, when it never does,
        when it jumps over it."""
        early = local - self.offset(local - _DAY)
        late = local - self.offset(local + _DAY)
        shown = [at for at in (early, late) if at + self.offset(at) == local]
        if shown:
            return min(shown)
        return self.change(min(early, late) - 1, max(early, late))


class Rule:
    """A checked cron expression in a zone."""

    def __init__(self, expression: Any, tz: Any) -> None:
        if not isinstance(expression, str):
            raise TypeError(
                "expression must be a str such as '30 2 * * *', "
                f"not {type(expression).__name__} {expression!r}"
            )
        self._simulate = _library()
        self.expression = expression
        self.tz = zone_of(tz)
        self._zone = Zone(self.tz)
        try:
            first = next(self._simulate(expression, datetime(2000, 1, 1)), None)
        except Exception as error:
            raise ValueError(
                f"expression is {expression!r}, which is no cron expression ({error}); give five "
                "fields: minute, hour, day of month, month, day of week (or six, seconds first)"
            ) from None
        if first is None:
            raise ValueError(
                f"expression is {expression!r}, which never comes: no date matches its fields"
            )
        fields = expression.split()
        # The library's own test for what follows Debian's rule for fixed times.
        self._fixed = len(fields) == 5 and not any(f.startswith("*") for f in fields[:2])

    def after(self, instant: int) -> int | None:
        """The first instant after ``instant`` at which the expression fires; None if there is none
        within 50 years, or before the end of the calendar."""
        try:
            return self._fixed_after(instant) if self._fixed else self._shown_after(instant)
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def _local_after(self, local: int) -> int | None:
        """The first matching local time after another, in seconds of a naive clock."""
        found = next(self._simulate(self.expression, _NAIVE_EPOCH + local * _S), None)
        return None if found is None else (found - _NAIVE_EPOCH) // _S

    def _fixed_after(self, instant: int) -> int | None:
        local = self._local_after(instant + self._zone.offset(instant))
        while local is not None:
            found = self._zone.first(local)
            if found > instant:
                return found
            # Its first showing, or the gap that it falls into, has passed.
            local = self._local_after(local)
        return None

    def _shown_after(self, instant: int) -> int | None:
        """Between two changes of the offset local time is UTC plus a constant: look for a match
        with the offset in force; when the offset changes before that, begin again at the change.

        Only a change close to where the search begins or to the match can have an effect: the clock
        does not come back by more than a day, nor forward to the match from farther away.
        """
        zone = self._zone
        offset = zone.offset(instant)
        while True:
            local = self._local_after(instant + offset)
            if local is None:
                return None
            found = local - offset
            near = min(found, instant + _DAY)
            if zone.offset(near) != offset:
                instant = zone.change(instant, near) - 1  # the change itself may be a match
                offset = zone.offset(instant + 1)
            elif near == found:
                return found
            else:
                instant = max(near, found - _DAY)
                offset = zone.offset(instant)


def _library() -> Callable[[str, datetime], Any]:
    """``cronsim.CronSim``; imported only where it is used."""
    try:
        from cronsim import CronSim
    except ImportError as error:
        raise ImportError(
            'Cron needs the library cronsim; install it with: pip install "duepool[cron]"'
        ) from error
    library: Callable[[str, datetime], Any] = CronSim
    return library
