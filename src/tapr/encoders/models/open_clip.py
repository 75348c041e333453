"""open_clip:MODEL/TAG, the published checkpoints and one's own. encoders/openclip.py is the code; it needs torch."""

from __future__ import annotations

from tapr.encoders.base import Encoder
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.row import EncoderRow, EncoderSetting, ListedModel
from tapr.errors import BadInput
from tapr.utils.extras import DISTRIBUTION

NAME = "open_clip"


def load(setting: EncoderSetting) -> Encoder:
    from tapr.encoders.openclip import OpenClipEncoder

    setting.no_arithmetic()
    model, pretrained = _model_and_tag(setting.name)
    return OpenClipEncoder(
        model,
        pretrained,
        extractor=setting.extractor,
        fit=setting.fit,
        template=setting.template,
        device=setting.device,
    )


def check_device(setting: EncoderSetting) -> None:
    from tapr.encoders.torch_bulk import choose_device

    choose_device(setting.device)


def card_name(name: str) -> str:
    """Return the name for the card: open_clip has two names for some weights."""
    from tapr.encoders.openclip import trained_as

    model, pretrained = _model_and_tag(name)
    return f"{NAME}:{trained_as(model, pretrained)}/{pretrained}"


def _model_and_tag(name: str) -> tuple[str, str]:
    model, slash, pretrained = name.removeprefix(f"{NAME}:").partition("/")
    if not (model and slash and pretrained):
        raise BadInput(
            f"cannot read the encoder {name!r}: write {NAME}:MODEL/TAG, or a checkpoint's PATH or TAG@PATH",
            code="unknown_name",
        )
    return model, pretrained


def _known(model_and_tag: str, dim: int, locals_count: int) -> ListedModel:
    origin = f"open_clip ({DISTRIBUTION}[openclip])"
    name = f"{NAME}:{model_and_tag}"
    return ListedModel(name, dim, locals_count, tuple(EXTRACTORS), origin, "MIT", kept_elsewhere=NAME)


ROWS = (
    EncoderRow(
        NAME,
        load,
        models=(
            _known("ViT-B-32/laion2b_s34b_b79k", 512, 49),
            _known("ViT-L-14/laion2b_s32b_b82k", 768, 64),
            _known("ViT-bigG-14/laion2b_s39b_b160k", 1280, 64),
            _known("ViT-B-32-quickgelu/openai", 512, 49),
            _known("ViT-L-14-quickgelu/openai", 768, 64),
        ),
        order=20,
        takes="MODEL/TAG",
        card_name=card_name,
        check_device=check_device,
    ),
)
