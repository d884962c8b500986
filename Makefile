# Each target does all of its own set-up; see tools/dev.py.
PYTHON ?= python3
ARGS ?=

.PHONY: demo test lint bench

demo test bench:
	@$(PYTHON) tools/dev.py $@ $(ARGS)

# Takes no ARGS, so that `make lint test ARGS=...` hands them to pytest alone.
lint:
	@$(PYTHON) tools/dev.py lint
