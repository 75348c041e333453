"""The default factorizer, without a language model: the picture's caption with the edit applied is Target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapr.encoders.base import Encoder, Float32
from tapr.factorize.base import Factorization, Reference
from tapr.factorize.caption import Edited, edit_caption
from tapr.factorize.caption.parse import parse
from tapr.factorize.spelling import is_word
from tapr.factorize.tagged import MAX_ATOM_WORDS, MAX_ATOMS, TaggedFactorizer, checked, is_grey
from tapr.factorize.wishes import Wish, read_wish
from tapr.spec import EditSpec

if TYPE_CHECKING:
    from tapr.describe.captioner import Captioner
    from tapr.describe.description import Description

NAME = "grounded/2"
MAX_WORDS = 40  # of Target: well within the 77 tokens of CLIP, and the 48 of smaller text towers


@dataclass(frozen=True)
class Seen:
    """What the picture shows, in words."""

    text: str
    score: float = 1.0
    sure: bool = True

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "score": round(self.score, 3), "sure": self.sure}


class GroundedFactorizer:
    """Deterministic: the same picture, edit and encoder always give the same spec."""

    name = NAME

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        self._encoder = encoder
        self._captioner = _captioner_of(encoder)
        self._tagged = TaggedFactorizer(encoder, folder)

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        checked(edit)
        if self._captioner is None:
            made = self._tagged.factorize(reference, edit)
            note = "this encoder has no captioner: the picture is read by tags, as grounded/1 does"
            return Factorization(made.spec, NAME, (*made.notes, note), made.details)
        picture = reference.evidence.global_vectors[0]
        seen = seen_as(self._captioner.describe_vector(picture), picture, self._encoder)
        made = apply(seen, edit)
        # the pixels are looked at only where they matter
        is_asked = "colour photo" in made.spec.add and is_grey(reference.image)
        return apply(seen, edit, grey=True) if is_asked else made


def seen_as(description: Description, picture: Float32, encoder: Encoder) -> Seen:
    """The captioner's words of a picture (d,), completed."""
    return Seen(man_or_woman(description.text, picture, encoder), description.score, description.sure)


def man_or_woman(caption: str, picture: Float32, encoder: Encoder) -> str:
    """ "an emoji of firefighter" leaves open who it is: the text tower decides between the two, by the picture (d,)."""
    parsed = parse(caption)
    person = parsed.subject
    if not parsed.is_emoji or person is None or not (person.who == "person" or (person.doing and not person.who)):
        return caption
    role = person.head[1:] if person.who else person.head
    said = []
    for who in ("man", "woman"):
        person.head = [who, *role]
        said.append(parsed.said())
    man, woman = encoder.encode_texts(said) @ picture
    return said[0] if man >= woman else said[1]


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


def _notes(seen: Seen, wish: Wish, edited: Edited) -> tuple[str, ...]:
    notes = [*wish.notes, *edited.notes]
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


def _captioner_of(encoder: Encoder) -> Captioner | None:
    from tapr.describe.captioner import Captioner, has_captioner

    return Captioner(encoder) if has_captioner(encoder.card) else None
