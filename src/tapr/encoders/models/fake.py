"""fake: colours and words, for tests and dry runs. encoders/fake.py is its code."""

from __future__ import annotations

from tapr.encoders.base import Encoder
from tapr.encoders.row import EncoderRow, EncoderSetting, ListedModel


def load(setting: EncoderSetting) -> Encoder:
    from tapr.encoders.fake import FakeEncoder

    setting.only_cpu()
    setting.only_extractor("tokens")
    setting.no_template()
    setting.no_arithmetic()
    return FakeEncoder(fit=setting.fit)


ROWS = (
    EncoderRow(
        "fake",
        load,
        models=(ListedModel("fake", 32, 9, ("tokens",), "no weights: colours and words, for tests", "MIT"),),
        order=90,
        check_device=EncoderSetting.only_cpu,
    ),
)
