"""Faults that people reported against other schedulers, as tests of this one.

Each test bears the number of its case. The sizes are lean, so that the suite stays short;
``DUEPOOL_FULL=1`` runs each case at its full size.
"""

import os

FULL = os.environ.get("DUEPOOL_FULL") == "1"


def size(lean: int, full: int) -> int:
    """How many rounds or tasks a test takes: ``full`` ones under ``DUEPOOL_FULL=1``."""
    return full if FULL else lean
