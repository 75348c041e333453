"""The default factorizer, without a language model: the picture's caption with the edit applied is Target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.factorize.caption import Edited, edit_caption
from tapr.factorize.row import FactorizerRow
from tapr.factorize.seeing import Seen, seer_of
from tapr.factorize.spelling import is_word
from tapr.factorize.tagged import MAX_ATOM_WORDS, MAX_ATOMS, TaggedFactorizer, checked, is_grey
from tapr.factorize.wishes import CaptionSetting, read_wish
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec

NAME = "grounded/2"
MAX_WORDS = 40  # of Target: well within the 77 tokens of CLIP, and the 48 of smaller text towers


class GroundedFactorizer:
    """Deterministic: the same picture, edit and encoder always give the same spec."""

    name = NAME

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        self.seer = seer_of(encoder, folder)
        self._tagged = TaggedFactorizer(encoder, folder)

    def factorize(self, reference: Reference, edit: str, seen: Seen | None = None) -> Factorization:
        """`seen`: what the reference shows, where that is known already."""
        checked(edit)
        if self.seer is None:
            made = self._tagged.factorize(reference, edit)
            note = "this encoder has no captioner: the picture is read by tags, as grounded/1 does"
            return Factorization(made.spec, NAME, (*made.notes, note), made.details)
        seen = seen or self.seer.see(reference.evidence.global_vectors[:1])[0]
        made = apply(seen, edit)
        # the pixels are looked at only where they matter
        is_asked = "colour photo" in made.spec.add and is_grey(reference.image)
        return apply(seen, edit, grey=True) if is_asked else made


def apply(seen: Seen, edit: str, *, grey: bool = False) -> Factorization:
    """The caption and the edit alone decide the spec."""
    wish = read_wish(edit, seen.text)
    details: dict[str, Any] = {"caption": seen.to_dict(), "read as": wish.text}
    if wish.is_foreign:
        spec = EditSpec(_short(edit, MAX_WORDS), add=(_short(edit, MAX_ATOM_WORDS)[:120],))
        return Factorization(spec, NAME, wish.notes, {**details, "operations": []})
    edited = edit_caption(seen.text, wish.reading, sure=seen.sure)
    factors = _factors(edited, grey)
    spec = EditSpec(_short(edited.target, MAX_WORDS) or "a picture", *factors, continuity=edited.continuity)
    details |= {"operations": list(edited.steps)}
    return Factorization(spec, NAME, _notes(seen, wish, edited), details)


def _factors(edited: Edited, grey: bool) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Add, Preserve, Remove: short, and an atom in one factor only. Add goes before Remove, Remove before Preserve."""
    used: set[str] = set()
    add = _unique(edited.add, used)
    seen = ["black and white photo"] if grey and "colour photo" in edited.add else []
    remove = _unique([*edited.remove, *seen], used)
    return add, _unique(edited.preserve, used), remove


def _notes(seen: Seen, wish: CaptionSetting, edited: Edited) -> tuple[str, ...]:
    notes = [*wish.notes, *edited.notes]
    if seen.instead_of:
        notes.append(f'the tags are surer than the caption "{seen.instead_of}": the picture is read as "{seen.text}"')
    if not seen.sure:
        notes.append(f'the caption "{seen.text}" is unsure: correct it on the page, or say in the edit what is meant')
    unknown = [word for word in wish.reading.unknown if not all(map(is_word, word.split("-")))]
    if unknown:
        notes.append(f"not known, taken as they stand: {', '.join(unknown)}")
    if not edited.add and not edited.remove:
        notes.append("the edit names nothing definite to add or remove: the search leans on the reference picture")
    if len(edited.add) > MAX_ATOMS or len(edited.remove) > MAX_ATOMS:
        notes.append(f"the edit names more than {MAX_ATOMS} things: only the first of them are used")
    return tuple(notes)


def _unique(phrases: Sequence[str], used: set[str]) -> tuple[str, ...]:
    kept = []
    for phrase in phrases[:MAX_ATOMS]:
        short = _short(phrase, MAX_ATOM_WORDS)[:120].strip()
        if short and short.casefold() not in used:
            used.add(short.casefold())
            kept.append(short)
    return tuple(kept)


def _short(text: str, words: int) -> str:
    """Printable, and at most so many words."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(text.split()[:words])[:500].strip()


ROWS = (
    FactorizerRow(
        "grounded",
        "The picture's caption with the edit applied; no language model.",
        lambda setting: GroundedFactorizer(setting.eyes),
        order=10,
        needs_encoder=True,
    ),
)
