"""How the options of `duepool replay` are read and refused, before anything runs."""

from __future__ import annotations

import math
import os
from pathlib import Path

import click

from duepool.cli import plot, sweep

__all__ = [
    "check_output",
    "check_picture",
    "check_speed",
    "check_sweep",
    "given",
    "read_capacity",
]


def read_capacity(ctx: click.Context, param: click.Parameter, text: str) -> int | None:
    """A capacity is a whole number of jobs above 0, or ``unbounded``, which is None."""
    if text.strip().lower() == "unbounded":
        return None
    try:
        number = int(text)
    except ValueError:
        reason = f"{text!r} is not a valid integer, nor is it 'unbounded'."
        raise click.BadParameter(reason, ctx, param) from None
    if number < 1:
        reason = f"{number} is not in the range x>=1; 'unbounded' rejects nothing."
        raise click.BadParameter(reason, ctx, param)
    return number


def check_speed(ctx: click.Context, param: click.Parameter, speed: float | None) -> float | None:
    """A speed is a finite number above 0."""
    if speed is not None and (not math.isfinite(speed) or speed <= 0):
        raise click.BadParameter(f"'{speed:g}' is not a finite number above 0.", ctx, param)
    return speed


def check_output(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Refuse a file that cannot be written before the replay, which may take long."""
    if name is None or name == "-":
        return name
    path = Path(name)
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a directory.", ctx, param)
    if not path.parent.is_dir():
        missing = f"{name!r}: the directory {str(path.parent)!r} does not exist."
        raise click.BadParameter(missing, ctx, param)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{name!r} cannot be written.", ctx, param)
    return name


def check_picture(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """A picture needs a suffix that says what it is, a place to be written to, and matplotlib."""
    if name is None:
        return None
    if os.path.splitext(name)[1].lower() not in plot.SUFFIXES:
        raise click.BadParameter(
            f"{name!r} does not end in {' or '.join(plot.SUFFIXES)}.", ctx, param
        )
    check_output(ctx, param, name)
    try:
        plot.load_matplotlib()
    except ImportError as error:
        # Not the name of whatever is missing within matplotlib: it comes with what it needs.
        what = "matplotlib, which is not installed"
        if not (isinstance(error, ModuleNotFoundError) and error.name == "matplotlib"):
            what = f"matplotlib, which cannot be imported ({error})"
        raise click.UsageError(
            f"{param.opts[0]} needs {what}. Install it with: pip install duepool[plot]", ctx
        ) from None
    return name


def check_sweep(ctx: click.Context, param: click.Parameter, text: str | None) -> range | None:
    """A sweep names the numbers of workers to try."""
    try:
        return None if text is None else sweep.parse(text)
    except sweep.SweepError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def given(ctx: click.Context, name: str) -> bool:
    """Was the option given, not left to its default?"""
    source = ctx.get_parameter_source(name)
    return source not in (None, click.core.ParameterSource.DEFAULT)
