"""Options of the commands that score: how much of the reference stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tapr.query.scoring import DEFAULT_SCORING, REFERENCE_FEATURES, RULES


def reference_weight_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            "--score",
            type=click.Choice(RULES),
            show_default=DEFAULT_SCORING.rule,
            help="The rule for how much of the reference stays; paper is the published score.",
        ),
        click.option(
            "--reference-weight",
            type=float,
            help="How much of the reference stays: 0 (words only) to 1 (picture only).",
        ),
        click.option(
            "--reference-features",
            type=click.Choice(list(REFERENCE_FEATURES)),
            show_default=DEFAULT_SCORING.reference_features,
            help="Which vectors of the reference count: its parts (local), the whole (global) or both.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
