"""Fixtures of the contract tests."""

import pytest

from .support import wait_until


@pytest.fixture(params=[0, 1])
def run(make, clock, request):
    """Runs tasks to their end, in manual mode or on a worker; its attribute is the scheduler."""
    scheduler = make(request.param, clock=clock)

    def run(*tasks):
        if request.param == 0:
            try:
                scheduler.tick()
            except (KeyboardInterrupt, SystemExit):
                scheduler.tick()
        for task in tasks:
            wait_until(task.done, "the end of a task")

    run.scheduler, run.manual = scheduler, request.param == 0
    return run
