"""``python -m duepool``: the version, the default engine, and why it is that one."""

import sys

import duepool
from duepool import _engine


def main() -> int:
    """Print three lines; exit code 1 when the engine that was forced cannot be had."""
    print(f"duepool {duepool.__version__}")
    try:
        engine = _engine.choose(None)
    except (ImportError, ValueError) as error:
        print(f"no engine: {error}", file=sys.stderr)
        return 1
    print(f"engine: {engine.NAME}")
    print(f"why: {_engine.explain()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
