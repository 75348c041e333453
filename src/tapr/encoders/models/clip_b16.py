"""clip-b16, the default: two towers on onnxruntime. encoders/clip_onnx.py is its code."""

from __future__ import annotations

from tapr.encoders.base import Encoder
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.row import EncoderRow, Known, Setting
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER

NAME = "clip-b16"


def load(setting: Setting) -> Encoder:
    from tapr.encoders.clip_onnx import ClipOnnxEncoder

    setting.only_cpu()
    return ClipOnnxEncoder(extractor=setting.extractor, fit=setting.fit, template=setting.template, say=setting.say)


ROWS = (
    EncoderRow(
        NAME,
        load,
        models=(
            Known(
                NAME,
                512,
                49,
                tuple(EXTRACTORS),
                f"{CLIP_B16_IMAGE_TOWER.sources[0]}; text tower inside tapr",
                "MIT (image tower), Apache-2.0 (text tower)",
                (CLIP_B16_IMAGE_TOWER,),
            ),
        ),
        order=10,
        check_device=Setting.only_cpu,
    ),
)
