"""Encoders by name, and the encoder a bank was made with."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.centred import SUFFIX, CentredEncoder, Centring
from tapr.encoders.local_tokens import DEFAULT_EXTRACTOR, EXTRACTORS
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, Say, WeightFile, is_present, quiet
from tapr.errors import BadInput
from tapr.extras import DISTRIBUTION

DEFAULT_ENCODER = "clip-b16"
OPEN_CLIP = "open_clip:"


@dataclass(frozen=True)
class Known:
    """One line of `tapr models list`."""

    name: str
    dim: int  # d
    locals_count: int  # M
    extractors: tuple[str, ...]
    origin: str
    licence: str
    files: tuple[WeightFile, ...] = ()  # what is fetched once and kept; empty where nothing is, or another package does

    @property
    def present(self) -> bool | None:
        """Whether it can be used without fetching; None where another package keeps the weights."""
        return None if self.name.startswith(OPEN_CLIP) else all(map(is_present, self.files))


def _open_clip(model_and_tag: str, dim: int, locals_count: int, licence: str = "MIT") -> Known:
    origin = f"open_clip ({DISTRIBUTION}[openclip])"
    return Known(OPEN_CLIP + model_and_tag, dim, locals_count, tuple(EXTRACTORS), origin, licence)


KNOWN = (
    Known(
        DEFAULT_ENCODER,
        512,
        49,
        tuple(EXTRACTORS),
        f"{CLIP_B16_IMAGE_TOWER.sources[0]}; text tower inside tapr",
        "MIT (image tower), Apache-2.0 (text tower)",
        (CLIP_B16_IMAGE_TOWER,),
    ),
    _open_clip("ViT-B-32/laion2b_s34b_b79k", 512, 49),
    _open_clip("ViT-L-14/laion2b_s32b_b82k", 768, 64),
    _open_clip("ViT-bigG-14/laion2b_s39b_b160k", 1280, 64),
    _open_clip("ViT-B-32-quickgelu/openai", 512, 49),
    _open_clip("ViT-L-14-quickgelu/openai", 768, 64),
    Known("fake", 32, 9, ("tokens",), "no weights: colours and words, for tests", "MIT"),
)


def load_encoder(
    name: str = DEFAULT_ENCODER,
    *,
    extractor: str = DEFAULT_EXTRACTOR,
    fit: str = "crop",
    template: str = "{}",
    device: str | None = None,
    say: Say = quiet,
) -> Encoder:
    """The encoder of this name. Weights that are not on the machine yet are fetched; `say` hears of it."""
    if name == DEFAULT_ENCODER:
        from tapr.encoders.clip_onnx import ClipOnnxEncoder

        _only_cpu(name, device)
        return ClipOnnxEncoder(extractor=extractor, fit=fit, template=template, say=say)
    if name == "fake":
        from tapr.encoders.fake import FakeEncoder

        _only_cpu(name, device)
        if extractor not in (DEFAULT_EXTRACTOR, "tokens"):  # the default means: what the encoder has
            raise BadInput(f"the fake encoder has no extractor {extractor!r}: leave it out")
        if template != "{}":
            raise BadInput("the fake encoder takes no text template: leave it out")
        return FakeEncoder(fit=fit)
    if name.startswith(OPEN_CLIP):
        from tapr.encoders.openclip import OpenClipEncoder

        model, pretrained = _model_and_tag(name)
        return OpenClipEncoder(model, pretrained, extractor=extractor, fit=fit, template=template, device=device)
    raise BadInput(f"unknown encoder {name!r}: choose {DEFAULT_ENCODER}, {OPEN_CLIP}MODEL/TAG or fake")


def card_name(name: str) -> str:
    """The name on the card of the encoder that is asked for by `name`: open_clip has two names for some weights."""
    if not name.startswith(OPEN_CLIP):
        return name
    from tapr.encoders.openclip import trained_as

    model, pretrained = _model_and_tag(name)
    return f"{OPEN_CLIP}{trained_as(model, pretrained)}/{pretrained}"


def _model_and_tag(name: str) -> tuple[str, str]:
    model, slash, pretrained = name.removeprefix(OPEN_CLIP).partition("/")
    if not (model and slash and pretrained):
        raise BadInput(f"cannot read the encoder {name!r}: write {OPEN_CLIP}MODEL/TAG, or a checkpoint's path as TAG")
    return model, pretrained


def load_for_card(
    card: EncoderCard, centring: Centring | None = None, *, device: str | None = None, say: Say = quiet
) -> Encoder:
    """The encoder that made a bank, or a refusal that names what differs."""
    extractor = card.extractor.removesuffix(SUFFIX)
    if (extractor != card.extractor) != (centring is not None):
        missing = "has no means to centre with" if centring is None else "has means to centre with"
        raise BadInput(f"the bank says {card.extractor!r} and {missing}: it is damaged, index its pictures anew")
    encoder = load_encoder(card.name, extractor=extractor, fit=card.fit, template=card.template, device=device, say=say)
    if centring is not None:
        encoder = CentredEncoder(encoder, centring.image_mean, centring.text_mean)
    refuse_other(card, encoder.card)
    return encoder


def refuse_other(bank: EncoderCard, encoder: EncoderCard) -> None:
    """Vectors of two different cards cannot be compared: say what differs."""
    differing = [
        field.name for field in fields(EncoderCard) if getattr(bank, field.name) != getattr(encoder, field.name)
    ]
    if differing:
        field = differing[0]
        raise BadInput(
            f"the bank was made with {field.replace('_', ' ')} {_short(getattr(bank, field))}, but the encoder "
            f"{encoder.name} here has {_short(getattr(encoder, field))}: use that encoder or index the pictures anew"
        )


def _only_cpu(name: str, device: str | None) -> None:
    if device not in (None, "cpu"):
        raise BadInput(f"the encoder {name} runs on the CPU only: leave the device {device!r} out")


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) == 64 else repr(value)
