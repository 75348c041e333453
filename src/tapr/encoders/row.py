"""What an encoder's file says of it: its name, the models that are listed under it, and how one is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tapr.encoders.base import Encoder
from tapr.encoders.extractors import DEFAULT_EXTRACTOR
from tapr.encoders.weights import Say, WeightFile, is_present, quiet
from tapr.errors import BadOption, NoDevice


@dataclass(frozen=True)
class ListedModel:
    """One line of `tapr models list`."""

    name: str
    dim: int  # d
    locals_count: int  # M
    extractors: tuple[str, ...]
    origin: str
    licence: str
    files: tuple[WeightFile, ...] = ()  # what is fetched once and kept; empty where nothing is, or another package does
    kept_elsewhere: str = ""  # the package that fetches and keeps the weights; "": tapr does, or there are none

    @property
    def present(self) -> bool | None:
        """Return whether it can be used without fetching; None where another package keeps the weights."""
        return None if self.kept_elsewhere else all(map(is_present, self.files))


@dataclass(frozen=True)
class EncoderSetting:
    """The options that were given. An encoder refuses those that it does not have; none is ignored silently."""

    name: str  # as given to --encoder
    extractor: str = DEFAULT_EXTRACTOR  # the default means: what the encoder has
    fit: str = "crop"
    template: str = "{}"
    device: str | None = None
    say: Say = quiet
    arithmetic: str | None = None  # None: the encoder's default, or TAPR_ARITHMETIC

    def only_cpu(self) -> None:
        if self.device not in (None, "cpu"):
            raise NoDevice(f"the encoder {self.name} runs on the CPU only: leave the device {self.device!r} out")

    def only_extractor(self, extractor: str) -> None:
        if self.extractor not in (DEFAULT_EXTRACTOR, extractor):
            raise BadOption(f"the {self.name} encoder has no extractor {self.extractor!r}: leave it out", "extractor")

    def no_arithmetic(self) -> None:
        if self.arithmetic is not None:
            raise BadOption(
                f"the {self.name} encoder has one arithmetic only: leave {self.arithmetic!r} out", "arithmetic"
            )

    def no_template(self) -> None:
        if self.template != "{}":
            raise BadOption(f"the {self.name} encoder takes no text template: leave it out", "template")


def _any_device(setting: EncoderSetting) -> None:
    """Accept any device here: loading refuses one that is not there."""


@dataclass(frozen=True)
class EncoderRow:
    """One encoder or family of them. A module of models/ lists its own in `ROWS`; another package, by an entry point.

    The file is read for every list of names: `load` imports what is heavy.
    """

    name: str
    load: Callable[[EncoderSetting], Encoder]
    models: tuple[ListedModel, ...]
    order: int = 50
    takes: str = ""  # what follows the name and a colon, such as MODEL/TAG; "": nothing
    card_name: Callable[[str], str] = str  # the name on the card, where weights have two names
    check_device: Callable[[EncoderSetting], None] = _any_device  # refuses one that it does not run on, before loading

    @property
    def written(self) -> str:
        """Return the name as it is given to --encoder."""
        return f"{self.name}:{self.takes}" if self.takes else self.name
