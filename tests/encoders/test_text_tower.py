"""The text tower of clip-b16, which is shipped with the package: one sentence at a time, or many together."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.encoders.model_files import CLIP_B16_TEXT_TOWER, CLIP_B16_TOKENIZER
from tapr.encoders.text_tower import MAX_TOKENS, TextTower

TEXTS = ["a dog", "a red shirt", "a cat", "two birds on a wire at night", "dogs " * (2 * MAX_TOKENS), "a hat"]


@pytest.fixture(scope="module")
def tower() -> TextTower:
    return TextTower(CLIP_B16_TEXT_TOWER.path, CLIP_B16_TOKENIZER.path)


def test_together_they_are_read_as_alone(tower: TextTower) -> None:
    alone = np.stack([tower.encode(text) for text in TEXTS])
    np.testing.assert_allclose(tower.encode_together(TEXTS), alone, atol=2e-6)
    np.testing.assert_allclose(tower.encode_together(TEXTS[3:4]), alone[3:4], atol=2e-6)
    assert tower.encode_together([]).shape == (0, alone.shape[1])


def test_the_order_of_the_others_changes_nothing(tower: TextTower) -> None:
    forth, back = tower.encode_together(TEXTS), tower.encode_together(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(forth, back, atol=1e-7)
