"""What a factorizer's file says of it: its name and help, what it needs, and how it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer

if TYPE_CHECKING:
    from tapr.factorize.settings import LLMSettings

OnFailure = Literal["error", "target-only"]


@dataclass(frozen=True, eq=False)
class FactorizerSetting:
    """The options that were given; a factorizer uses those that it has."""

    encoder: Encoder | None = None
    records: str | Path | None = None
    settings: LLMSettings | None = None  # of a language model
    on_failure: OnFailure = "error"

    @property
    def eyes(self) -> Encoder:
        """Return the encoder, for a row that says `needs_encoder`; the registry has checked that there is one."""
        if self.encoder is None:
            raise BadInput("this factorizer looks at the picture with an encoder: give it one", code="missing_option")
        return self.encoder


@dataclass(frozen=True)
class FactorizerRow:
    """One factorizer. A module of this folder lists its own in `ROWS`; another package, by an entry point."""

    name: str  # as given to --factorizer
    help: str
    load: Callable[[FactorizerSetting], Factorizer]
    order: int = 50
    needs_encoder: bool = False  # it reads the reference's evidence; the others only need its picture or its hash
    remembers: bool = True  # a record file before it is a memory that grows; False: it has no use for one, or reads it
    asks_server: bool = False  # it takes a language model's settings and --on-failure
