"""The examples of docs/jobs.md do what they say, one after the other, on both engines."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "jobs.md"


def test_the_examples_run(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEPOOL_ENGINE", engine)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), names)
    assert engine == type(names["scheduler"])._engine_module.NAME
    assert names["scheduler"].stats().failed == 0
