"""clip-b16, the default: two towers on onnxruntime. encoders/clip_onnx.py is its code."""

from __future__ import annotations

from typing import Any

from tapr.encoders.arithmetic import FLOAT16
from tapr.encoders.base import Encoder
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.row import EncoderRow, EncoderSetting, ListedModel
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER

NAME = "clip-b16"


def load(setting: EncoderSetting) -> Encoder:
    options: dict[str, Any] = {
        "extractor": setting.extractor,
        "fit": setting.fit,
        "template": setting.template,
        "arithmetic": setting.arithmetic,
        "say": setting.say,
    }
    gpu = _gpu(setting)
    if gpu is None:
        from tapr.encoders.clip_onnx import ClipOnnxEncoder

        return ClipOnnxEncoder(**options)
    from tapr.encoders.clip_torch import ClipTorchEncoder

    return ClipTorchEncoder(gpu, **options)


def _gpu(setting: EncoderSetting) -> Any:
    """Return the GPU to use, if any: the one asked for, or one that is there where the arithmetic leaves the choice."""
    if setting.device is None and setting.arithmetic not in (None, FLOAT16):
        return None
    from tapr.encoders.gpu import gpu_for

    return gpu_for(setting.device)


def check_device(setting: EncoderSetting) -> None:
    _gpu(setting)


ROWS = (
    EncoderRow(
        NAME,
        load,
        models=(
            ListedModel(
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
        check_device=check_device,
    ),
)
