"""The examples of ``docs/executors.md`` run as they stand there."""

import importlib.util
import re
from pathlib import Path

import pytest

from . import support

PAGE = Path(__file__).resolve().parents[2] / "docs" / "executors.md"

OUTPUT = {
    "max_workers=4": "142477500\n",
    "ProcessPoolExecutor": "142477500\n",
    "distributed": "142477500\n",
    "LoopExecutor": "4950\ntimeout\n",
    "InlineExecutor": "",
}
"""By a word of each example, what it prints."""


def examples():
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_each_example_is_known_here():
    assert PAGE.is_file() and len(examples()) == len(OUTPUT)


@pytest.mark.parametrize("word", OUTPUT)
def test_an_example(engine, tmp_path, word):
    if word == "distributed" and importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed (extra dask: distributed)")
    found = [text for text in examples() if word in text]
    assert len(found) == 1
    assert support.script(tmp_path, engine, found[0]) == OUTPUT[word]


def test_they_differ_by_one_argument():
    threads, processes, cluster = examples()[:3]
    same = threads[threads.index("def price") : threads.index("if __name__")]
    assert same in processes and same in cluster
