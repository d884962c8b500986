"""The examples of docs/overload.md do what they say, one after the other, on both engines."""

import re
from pathlib import Path

from duepool import overload

PAGE = Path(__file__).resolve().parents[2] / "docs" / "overload.md"


def test_the_examples_run(engine, monkeypatch):
    monkeypatch.setenv("DUEPOOL_ENGINE", engine)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    names: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), names)
    assert engine == type(names["scheduler"])._engine_module.NAME


def test_the_page_names_every_policy_and_every_method():
    text = PAGE.read_text("utf-8")
    for name, policy in overload._BY_NAME.items():
        assert f'"{name}"' in text
        assert f"`{policy.__name__}(" in text
    public = [name for name in vars(overload.Submission) if not name.startswith("_")]
    for name in {*public, "count", "name"}:
        assert f"`{name}" in text, name
