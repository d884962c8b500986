"""§10: virtual time: ``run_for``, ``run_until_idle``, virtual workers, the pytest plugin."""

S = 1_000_000_000
"""Nanoseconds in a second."""
