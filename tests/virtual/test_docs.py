"""The examples of docs/testing.md do what they say, one after the other, on both engines."""

import re
from pathlib import Path

import duepool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_examples_run(engine, monkeypatch, make, clock):
    monkeypatch.setenv("DUEPOOL_ENGINE", engine)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    names: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), names)
    assert engine == type(names["shop"])._engine_module.NAME
    scheduler = make(0, clock=clock)
    names["test_the_reminder_comes_after_a_minute"](scheduler, clock)
    assert duepool.current_task() is None
