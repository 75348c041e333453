"""Options of the verbs that score: how much of the reference stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tapr.score.compile import LOOKS
from tapr.stay import DEFAULT_SCORING, RULES


def stay_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            "--score",
            type=click.Choice(RULES),
            show_default=DEFAULT_SCORING.rule,
            help="What decides how much the reference weighs; paper: the published score.",
        ),
        click.option("--stay", type=float, help="More like the words (0) or more like the picture (1)."),
        click.option(
            "--looks",
            type=click.Choice(list(LOOKS)),
            show_default=DEFAULT_SCORING.looks,
            help="What stays of the reference: its parts (local), the whole (global), both.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
