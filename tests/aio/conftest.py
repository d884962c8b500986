"""Nothing is logged, printed or warned in any test of this folder."""

import logging
from collections.abc import Iterator

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Unraisable errors, unhandled errors of threads, coroutines never awaited: all fail the test.
    for item in items:
        if item.path.parent.name == "aio":
            item.add_marker(pytest.mark.filterwarnings("error"))


@pytest.fixture(autouse=True)
def quiet(
    make: object, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """Set up after ``make``, hence checked before its schedulers are stopped."""
    caplog.set_level(logging.INFO)
    yield
    said = [r.getMessage() for r in caplog.get_records("call")]
    assert said == []
    assert capfd.readouterr() == ("", "")
