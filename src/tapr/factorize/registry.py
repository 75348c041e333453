"""Factorizers by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.records import Maker, seen_with
from tapr.factorize.replay import RecordsFactorizer, RememberingFactorizer
from tapr.factorize.target_only import TargetOnlyFactorizer

if TYPE_CHECKING:
    from tapr.factorize.settings import LLMSettings

NAMES = ("grounded", "grounded/1", "local", "openai", "records", "target-only")  # "grounded" is grounded/2
DEFAULT_FACTORIZER = "grounded"
TAGGED = "grounded/1"


def load_factorizer(
    name: str = DEFAULT_FACTORIZER,
    *,
    encoder: Encoder | None = None,
    records: str | Path | None = None,
    settings: LLMSettings | None = None,
    on_failure: Literal["error", "target-only"] = "error",
) -> Factorizer:
    """`records` is what "records" replays; before the others it is a memory that also grows."""
    if name not in NAMES:
        raise BadInput(f"unknown factorizer {name!r}: choose {', '.join(NAMES)}")
    if on_failure not in ("error", "target-only"):
        raise BadInput(f"unknown answer to a failure {on_failure!r}: choose error or target-only")
    if on_failure != "error" and name != "openai":
        raise BadInput(f"--on-failure {on_failure} goes with the openai factorizer only, not with {name}")
    if name == "target-only":
        return TargetOnlyFactorizer()
    if name == "records":
        if records is None:
            raise BadInput("the records factorizer needs a record file: give it with --records FILE")
        return RecordsFactorizer(records)

    factorizer: Factorizer
    if name == "openai":
        from tapr.factorize.openai_compatible import OpenAIFactorizer
        from tapr.factorize.settings import LLMSettings

        factorizer = OpenAIFactorizer(settings or LLMSettings.load(), encoder=encoder, on_failure=on_failure)
    elif encoder is None:
        raise BadInput(f"the {name} factorizer looks at the picture with an encoder: give it one")
    elif name == "local":
        from tapr.factorize.local import LocalFactorizer

        factorizer = LocalFactorizer(encoder)
    else:
        from tapr.factorize.grounded import GroundedFactorizer
        from tapr.factorize.tagged import TaggedFactorizer

        factorizer = TaggedFactorizer(encoder) if name == TAGGED else GroundedFactorizer(encoder)
    if records is None:
        return factorizer
    return RememberingFactorizer(factorizer, records, maker_of(factorizer, encoder))


def needs_encoder(name: str) -> bool:
    """Whether the factorizer reads the reference's evidence; the others only need its picture or its hash."""
    return name in ("grounded", TAGGED, "local")


def maker_of(factorizer: Factorizer, encoder: Encoder | None = None) -> Maker:
    """What decides this factorizer's answers: its own account, or its name and the encoder that it looks with."""
    maker = getattr(factorizer, "maker", None)
    if isinstance(maker, Maker):
        return maker
    return Maker(factorizer.name if encoder is None else seen_with(factorizer.name, encoder))
