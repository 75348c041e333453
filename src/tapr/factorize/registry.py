"""Factorizers by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.records import Maker, seen_with
from tapr.factorize.replay import CachingFactorizer
from tapr.factorize.row import FactorizerRow, FactorizerSetting, OnFailure
from tapr.plugins import Registry

if TYPE_CHECKING:
    from tapr.factorize.settings import LLMSettings

FACTORIZERS: Registry[FactorizerRow] = Registry(
    "factorizer",
    "tapr.factorize",
    "tapr.factorizers",
    name_of=lambda row: row.name,
    order_of=lambda row: row.order,
    is_row=lambda offered: isinstance(offered, FactorizerRow),
)
DEFAULT_FACTORIZER = "grounded"


def load_factorizer(
    name: str = DEFAULT_FACTORIZER,
    *,
    encoder: Encoder | None = None,
    records: str | Path | None = None,
    settings: LLMSettings | None = None,
    on_failure: OnFailure = "error",
) -> Factorizer:
    """Return a factorizer. `records` is what "records" replays; before the others it is a memory that also grows."""
    row = FACTORIZERS[name]
    if on_failure not in ("error", "target-only"):
        raise BadInput(f"unknown answer to a failure {on_failure!r}: choose error or target-only", code="bad_option")
    if on_failure != "error" and not row.asks_server:
        what = f"--on-failure {on_failure} goes with the openai factorizer only, not with {name}"
        raise BadInput(what, code="conflicting_options")
    if row.needs_encoder and encoder is None:
        what = f"the {name} factorizer looks at the picture with an encoder: give it one"
        raise BadInput(what, code="missing_option")
    factorizer = row.load(FactorizerSetting(encoder, records, settings, on_failure))
    if records is None or not row.remembers:
        return factorizer
    return CachingFactorizer(factorizer, records, maker_of(factorizer, encoder))


def needs_encoder(name: str) -> bool:
    """Return whether the factorizer reads the reference's evidence; the others only need its picture or its hash."""
    return FACTORIZERS[name].needs_encoder


def maker_of(factorizer: Factorizer, encoder: Encoder | None = None) -> Maker:
    """Return what decides this factorizer's answers: what it says itself, or its name and its encoder."""
    maker = getattr(factorizer, "maker", None)
    if isinstance(maker, Maker):
        return maker
    return Maker(factorizer.name if encoder is None else seen_with(factorizer.name, encoder))
