"""The examples of docs/wall-clock.md do what they say, one after the other, on both engines."""

import re
from pathlib import Path

from duepool import _wall, _wall_watch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wall-clock.md"


def test_the_examples_run(engine, monkeypatch):
    monkeypatch.setenv("DUEPOOL_ENGINE", engine)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    names: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), names)
    assert engine == type(names["scheduler"])._engine_module.NAME


def test_the_numbers_are_those_of_the_code():
    text = PAGE.read_text("utf-8")
    assert f"within {_wall_watch.RECHECK_S:.0f} s" in text
    assert f"no more than {_wall.TOLERANCE_NS // 10**6} ms" in text
    assert f"`{_wall_watch.NAME}`" in text
    assert _wall_watch.LINGER_S == 0.5
    assert "half a second" in text
