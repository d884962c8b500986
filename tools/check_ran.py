"""Fails unless the tests of some name ran: ``check_ran.py REPORT WORD``.

REPORT is what pytest wrote for ``--junitxml``. The tests whose module, class or name has WORD in it
(in either case) must be at least one, and none of them skipped. What failed, pytest has said.
"""

import sys
import xml.etree.ElementTree as ElementTree


def verdict(report: str, word: str) -> tuple[int, list[str]]:
    """How many tests of that name the report has, and which of them were skipped, and why."""
    count, skipped = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        if word.lower() not in name.lower():
            continue
        count += 1
        for mark in case.iter("skipped"):
            if mark.get("type") != "pytest.xfail":
                skipped.append(f"{name}: {mark.get('message', '')}")
    return count, skipped


def main(arguments: list[str]) -> int:
    """0 when they all ran, 1 when not, 2 when the call is wrong."""
    if len(arguments) != 2:
        print("usage: check_ran.py REPORT WORD", file=sys.stderr)
        return 2
    report, word = arguments
    try:
        count, skipped = verdict(report, word)
    except (OSError, ElementTree.ParseError) as error:
        print(f"check_ran: {report}: {error}", file=sys.stderr)
        return 2
    if not count:
        print(f"check_ran: no test with '{word}' in its name", file=sys.stderr)
    for line in skipped:
        print(f"check_ran: skipped: {line}", file=sys.stderr)
    return 1 if skipped or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
