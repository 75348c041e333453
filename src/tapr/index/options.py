"""What a gallery is to be made of, the refusal to change that in an existing one, and the encoder it was made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.arithmetic import asked_for
from tapr.encoders.base import Encoder
from tapr.encoders.centred import SUFFIX, Centring
from tapr.encoders.registry import card_name, load_for_card
from tapr.errors import BadInput
from tapr.store.block import PRECISIONS, Precision
from tapr.store.layout import Manifest
from tapr.utils.arguments import text_or_none


@dataclass(frozen=True)
class Options:
    """What was asked of the bank; None is the default for a new gallery and "as it is" for an existing one."""

    encoder: str | Encoder | None = None
    precision: Precision | None = None
    extractor: str | None = None
    fit: str | None = None
    template: str | None = None
    centre: bool | None = None
    arithmetic: str | None = None

    def __post_init__(self) -> None:
        if self.precision not in (None, *PRECISIONS):
            raise BadInput(f"unknown precision {self.precision!r}: choose {', '.join(PRECISIONS)}")
        for name, example in (("extractor", "clearclip"), ("fit", "crop"), ("template", "a photo of {}")):
            text_or_none(getattr(self, name), name, example)
        asked_for(self.arithmetic)  # refuses one that there is not

    def check_against(self, folder: Path, manifest: Manifest) -> None:
        card = manifest.card
        centred = manifest.image_mean is not None
        encoder = self.encoder if isinstance(self.encoder, (str, type(None))) else self.encoder.card.name
        if encoder not in (None, card.name):
            encoder = card_name(encoder)
        pairs: list[tuple[str, Any, Any]] = [
            ("encoder", encoder, card.name),
            ("precision", self.precision, manifest.precision),
            ("extractor", self.extractor, card.extractor.removesuffix(SUFFIX)),
            ("fit", self.fit, card.fit),
            ("template", self.template, card.template),
            ("centring", self.centre, centred),
            ("arithmetic", self.arithmetic, card.arithmetic),
        ]
        for name, wanted, present in pairs:
            if wanted is not None and wanted != present:
                raise BadInput(
                    f"the gallery {str(folder)!r} was made with {name} {present!r}, not {wanted!r}:"
                    " leave the option out, or index into a new folder"
                )


def load_own_encoder(manifest: Manifest, device: str | None = None) -> Encoder:
    """Load the encoder that a gallery was made with; it is refused when its weights differ."""
    card = manifest.card
    if manifest.image_mean is None or manifest.text_mean is None:
        return load_for_card(card, device=device)
    means = Centring(np.array(manifest.image_mean, np.float32), np.array(manifest.text_mean, np.float32))
    return load_for_card(card, means, device=device)
