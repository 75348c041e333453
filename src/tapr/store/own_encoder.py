"""The encoder that a gallery was made with."""

from __future__ import annotations

import numpy as np

from tapr.encoders.base import Encoder
from tapr.encoders.centred import Centring
from tapr.encoders.registry import load_for_card
from tapr.store.layout import Manifest


def load_own_encoder(manifest: Manifest, device: str | None = None) -> Encoder:
    """Load the encoder that a gallery was made with; it is refused when its weights differ."""
    if manifest.image_mean is None or manifest.text_mean is None:
        return load_for_card(manifest.card, device=device)
    means = Centring(np.array(manifest.image_mean, np.float32), np.array(manifest.text_mean, np.float32))
    return load_for_card(manifest.card, means, device=device)
