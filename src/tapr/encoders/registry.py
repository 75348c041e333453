"""Encoders by name, and the encoder a bank was made with."""

from __future__ import annotations

from dataclasses import fields, replace

from tapr.encoders.arithmetic import ONLY, ROWS, agree, asked_for
from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.centred import SUFFIX, CentredEncoder, Centring
from tapr.encoders.extractors import DEFAULT_EXTRACTOR
from tapr.encoders.row import EncoderRow, EncoderSetting, ListedModel
from tapr.encoders.weights import Say, quiet
from tapr.errors import BadInput, BadOption
from tapr.plugins import Registry
from tapr.utils.arguments import shown_value

ENCODERS: Registry[EncoderRow] = Registry(
    "encoder",
    "tapr.encoders.models",
    "tapr.encoders",
    name_of=lambda row: row.name,
    order_of=lambda row: row.order,
    is_row=lambda offered: isinstance(offered, EncoderRow),
)
DEFAULT_ENCODER = "clip-b16"


def known_models() -> tuple[ListedModel, ...]:
    """Return the lines of `tapr models list`, other packages' last."""
    return tuple(known for _, row in ENCODERS.working() for known in row.models)


def row_of(name: str) -> EncoderRow:
    """Return the row that a name, as given to --encoder, belongs to."""
    family, colon, _ = name.partition(":")
    if family in ENCODERS and bool(colon) == bool(ENCODERS[family].takes):
        return ENCODERS[family]
    *others, last = (row.written for _, row in ENCODERS.working())
    raise BadInput(f"unknown encoder {name!r}: choose {', '.join(others)} or {last}", code="unknown_name")


def load_encoder(
    name: str = DEFAULT_ENCODER,
    *,
    extractor: str = DEFAULT_EXTRACTOR,
    fit: str = "crop",
    template: str = "{}",
    device: str | None = None,
    arithmetic: str | None = None,
    say: Say = quiet,
) -> Encoder:
    """Return the encoder of this name. Weights that are not on the machine yet are fetched; `say` reports it."""
    return row_of(name).load(EncoderSetting(name, extractor, fit, template, device, say, arithmetic))


def encoder_of(encoder: object) -> str | Encoder | None:
    """Return an encoder, or the name of one; anything else is refused."""
    if isinstance(encoder, type):
        raise BadOption(
            f"the encoder is the class {encoder.__name__}: give an encoder made with it, or a name", "encoder"
        )
    if encoder is None or isinstance(encoder, (str, Encoder)):
        return encoder
    raise BadOption(
        f"the encoder must be a name such as 'clip-b16' or an encoder, not {shown_value(encoder)}", "encoder"
    )


def check_device(name: str, device: str) -> None:
    """Refuse a device that this encoder does not run on here, as loading it there would; load nothing."""
    row_of(name).check_device(EncoderSetting(name, device=device))


def card_name(name: str) -> str:
    """Return the name on the card of the encoder called `name`: some have two names for the same weights."""
    return row_of(name).card_name(name)


def load_for_card(
    card: EncoderCard, centring: Centring | None = None, *, device: str | None = None, say: Say = quiet
) -> Encoder:
    """Return the encoder that made a bank, or refuse and name what differs."""
    extractor = card.extractor.removesuffix(SUFFIX)
    if (extractor != card.extractor) != (centring is not None):
        missing = "has no means to centre with" if centring is None else "has means to centre with"
        raise BadInput(
            f"the bank says {card.extractor!r} and {missing}: it is damaged, index its pictures anew",
            code="damaged_gallery",
        )
    encoder = load_encoder(
        card.name,
        extractor=extractor,
        fit=card.fit,
        template=card.template,
        device=device,
        say=say,
    )
    if centring is not None:
        encoder = CentredEncoder(encoder, centring.image_mean, centring.text_mean)
    refuse_other(card, encoder.card)
    return encoder


def default_arithmetic(card: EncoderCard) -> str:
    """Return the arithmetic that a new gallery of this encoder gets here."""
    return (asked_for() or ROWS) if card.name == DEFAULT_ENCODER else ONLY


def refuse_other(bank: EncoderCard, encoder: EncoderCard) -> None:
    """Refuse to compare vectors of two different cards, and say what differs."""
    if agree(bank.arithmetic, encoder.arithmetic):
        encoder = replace(encoder, arithmetic=bank.arithmetic)
    differing = [
        field.name
        for field in fields(EncoderCard)
        if field.compare and getattr(bank, field.name) != getattr(encoder, field.name)
    ]
    if differing:
        field = differing[0]
        raise BadInput(
            f"the bank was made with {field.replace('_', ' ')} {_short(getattr(bank, field))}, but the encoder "
            f"{encoder.name} here has {_short(getattr(encoder, field))}: use that encoder or index the pictures anew",
            code="other_encoder",
        )


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) == 64 else repr(value)
