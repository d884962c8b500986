"""Cron expressions in their zones: changes of the clock, and what is refused.

Past, settled transitions only. A brute-force oracle that looks at every minute of a zone's clock
checks the rules where no case does.
"""

import sys
import time
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from duepool.triggers import Cron, limit

pytestmark = pytest.mark.filterwarnings("error")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        # The gap's end; never two, never a local time that does not exist.
        (
            "30 2 * * *",
            "America/New_York",
            "2024-03-09T12:00Z",
            ["2024-03-10T07:00Z", "2024-03-11T06:30Z"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2024-11-02T12:00Z",
            ["2024-11-03T05:30Z", "2024-11-04T06:30Z"],
        ),
        (
            "*/30 * * * *",
            "Australia/Melbourne",
            "2024-04-06T14:29:59Z",
            [
                "2024-04-06T14:30Z",
                "2024-04-06T15:00Z",
                "2024-04-06T15:30Z",
                "2024-04-06T16:00Z",
                "2024-04-06T16:30Z",
                "2024-04-06T17:00Z",
                "2024-04-06T17:30Z",
            ],
        ),
        (
            "0 0 * * 0",
            "America/Sao_Paulo",
            "2018-10-28T12:00Z",
            ["2018-11-04T03:00Z", "2018-11-11T02:00Z", "2018-11-18T02:00Z"],
        ),
        # Several times in one gap.
        (
            "0,15,30 2,3 * * *",
            "America/New_York",
            "2024-03-10T06:00Z",
            ["2024-03-10T07:00Z", "2024-03-10T07:15Z", "2024-03-10T07:30Z", "2024-03-11T06:00Z"],
        ),
        # Asked within the hour that comes twice.
        ("30 1 * * *", "America/New_York", "2024-11-03T06:10Z", ["2024-11-04T06:30Z"]),
    ],
)
def test_c17_gaps_and_overlaps(expression: str, tz: str, after: str, expected: list[str]) -> None:
    trigger = Cron(expression, tz=tz)
    due = at(after)
    for text in expected:
        due = trigger.next_due(due)
        assert due == at(text)
        assert due.utcoffset() is not None


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        ("0 0 * * 1-5", "America/Chicago", "2021-03-12T06:00Z", "2021-03-15T05:00Z"),
        ("0 12 * * 0", "Europe/Berlin", "2022-03-24T11:00Z", "2022-03-27T10:00Z"),
        ("0 0 */10 * *", "UTC", "2021-02-21T00:00Z", "2021-03-01T00:00Z"),
    ],
)
def test_c18_no_day_is_lost(expression: str, tz: str, after: str, expected: str) -> None:
    assert Cron(expression, tz=tz).next_due(at(after)) == at(expected)


@pytest.mark.parametrize(
    "expression",
    # The last one is found out only by searching all years.
    ["0 0 31 4 *", "0 0 30 2 *", "0 0 31 2,4,6 *", "0 0 LW * */6"],
)
def test_c19_a_date_that_never_comes(expression: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ValueError, match="expression is"):
        Cron(expression, tz="Europe/Berlin")
    assert time.perf_counter() - begin < 0.1


def test_c19_one_that_comes_in_some_months() -> None:
    due = Cron("0 0 31 4,5 *").next_due(at("2024-04-01T00:00Z"))
    assert due == at("2024-05-31T00:00Z")


def test_a_rare_date_is_found() -> None:
    due = Cron("0 0 29 2 */7", tz="Europe/Berlin").next_due(at("2033-01-01T00:00Z"))
    assert due == at("2060-02-28T23:00Z")


# -- every minute ----------------------------------------------------------------------------------

EXPRESSIONS = [
    "*/30 * * * *", "0 * * * *", "*/10 1 * * *", "*/15 2 * * *", "0 */2 * * *",
    "30 2 * * *", "0,30 1,2,3 * * *", "15 0,1 * * *", "59 23 * * *", "1 0 31 12 *",
]  # fmt: skip
CHANGES = [
    ("America/New_York", "2024-03-10T05:00Z"),
    ("America/New_York", "2024-11-03T03:00Z"),
    # By half an hour, at midnight, by a whole day, by half an hour for good.
    ("Australia/Lord_Howe", "2024-04-06T12:00Z"),
    ("Australia/Lord_Howe", "2024-10-05T12:00Z"),
    ("America/Sao_Paulo", "2018-11-04T00:00Z"),
    ("America/Sao_Paulo", "2018-02-17T22:00Z"),
    ("Pacific/Apia", "2011-12-29T20:00Z"),
    ("Asia/Pyongyang", "2018-05-04T10:00Z"),
]


def matching(expression: str, around: datetime) -> set[datetime]:
    """The local times that match, from two days before to four after."""
    times: set[datetime] = set()
    for due in CronSim(expression, around - timedelta(days=2)):
        if due > around + timedelta(days=4):
            break
        times.add(due)
    return times


def every_minute(expression: str, tz: str, start: datetime, hours: int) -> list[datetime]:
    """What the clock on the wall says each minute, and the rules applied to that."""
    zone, minute = ZoneInfo(tz), timedelta(minutes=1)
    fixed = not any(field.startswith("*") for field in expression.split()[:2])
    matches = matching(expression, start.replace(tzinfo=None))
    found = []
    fired: set[datetime] = set()
    before: datetime | None = None
    for number in range(hours * 60):
        now = start + number * minute
        local = now.astimezone(zone).replace(tzinfo=None)
        shown = [local]
        if fixed:
            while before is not None and shown[0] > before + minute:
                shown.insert(0, shown[0] - minute)
        hits = matches.intersection(shown) - (fired if fixed else set())
        fired |= hits
        if hits:
            found.append(now)
        before = local
    return found


@pytest.mark.parametrize(("tz", "start"), CHANGES)
def test_a_change_of_the_clock_minute_by_minute(tz: str, start: str) -> None:
    begin, hours = at(start), 30
    for expression in EXPRESSIONS:
        expected = [
            due
            for due in every_minute(expression, tz, begin - timedelta(hours=3), hours + 3)
            if due > begin
        ]
        trigger, found = Cron(expression, tz=tz), [begin]
        while found[-1] < begin + timedelta(hours=hours):
            found.append(trigger.next_due(found[-1]))
        assert found[1:-1] == expected, expression
        # Asked from anywhere in between.
        for number in range(0, hours * 60, 37):
            asked = begin + timedelta(minutes=number, seconds=30)
            later = [due for due in expected if due > asked]
            if later:
                assert trigger.next_due(asked) == later[0], (expression, asked)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("* * * *",), ValueError, "give five fields"),
        (("60 * * * *",), ValueError, "Bad minute"),
        (("@daily",), ValueError, "five fields"),
        (("",), ValueError, "five fields"),
        ((None,), TypeError, "expression must be a str"),
        ((5,), TypeError, "expression must be a str"),
        (("* * * * *", "Mars/Olympus"), ValueError, "'Mars/Olympus', which is no known zone"),
        (("* * * * *", "../etc/passwd"), ValueError, "no known zone"),
        (("* * * * *", ""), ValueError, "no known zone"),
        (("* * * * *", 3), TypeError, "tz must be the name of a zone or a tzinfo"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Cron(*arguments)  # type: ignore[arg-type]


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        Cron("* * * * *").next_due(datetime(2024, 1, 1))
    with pytest.raises(TypeError, match="aware datetimes"):
        Cron("* * * * *").next_due(5)


def test_a_zone_may_be_any_tzinfo() -> None:
    fixed = timezone(timedelta(hours=5, minutes=45))
    due = Cron("0 0 * * *", tz=fixed).next_due(at("2024-01-01T00:00Z"))
    assert due == at("2024-01-01T18:15Z")


def test_the_answer_is_in_the_zone_of_the_question() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    due = Cron("0 12 * * *", tz="UTC").next_due(datetime(2024, 1, 1, tzinfo=berlin))
    assert (due.tzinfo, due.hour) == (berlin, 13)


def test_six_fields_begin_with_the_seconds() -> None:
    due = Cron("*/20 * * * * *").next_due(at("2024-01-01T00:00:20Z"))
    assert due == at("2024-01-01T00:00:40Z")


def test_the_calendar_ends() -> None:
    assert Cron("0 0 1 1 *").next_due(at("9999-06-01T00:00Z")) is None
    assert limit(Cron("0 0 1 1 *"), 3).next_due(at("9999-06-01T00:00Z")) is None


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ImportError, match=r"pip install \"duepool\[cron\]\""):
        Cron("* * * * *")
