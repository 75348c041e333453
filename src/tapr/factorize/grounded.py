"""The default factorizer, without a language model: an edit is read several ways, and their sum is searched with.

The ways are independent: the caption of the picture with the edit applied, the edit with its subject named, and the
edit as it stands where it could be a caption. What fails a check of its grammar is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import Encoder
from tapr.factorize.caption import Edited, edit_caption
from tapr.factorize.caption.parse import parse
from tapr.factorize.grammar.words import load, singular, with_article
from tapr.factorize.grammatical import is_caption, is_grammatical, names_its_subject
from tapr.factorize.kinds import kind_of_edit
from tapr.factorize.medium import medium_of
from tapr.factorize.row import FactorizerRow
from tapr.factorize.seeing import Seen, Seer, seer_of
from tapr.factorize.spelling import is_word
from tapr.factorize.tagged import MAX_ATOM_WORDS, MAX_ATOMS, checked, ground, is_grey
from tapr.factorize.tags import Tagger, Tags
from tapr.factorize.wishes import Wish, read_wish
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.types import Float32

NAME = "grounded/3"
MAX_WORDS = 40  # of a sentence: well within the 77 tokens of CLIP, and the 48 of smaller text towers
_SAID_AROUND = (  # what makes a description of the wanted picture no caption
    (re.compile(r"\b(?:should|must|needs? to|has to|have to)(?: only| just)? be\b"), "is"),
    (re.compile(r"\b(?:should|must|needs? to)(?: only| just)? have\b"), "has"),
    (
        re.compile(
            r"^(?:this|it|there|the (?:photo|picture|image))(?: only| just)? (?:is|are|shows?|has) (?!no\b|not\b)"
        ),
        "",
    ),
    (re.compile(r"^(?:only|just) | (?:in|of) (?:this|the) (?:photo|photograph|picture|image)\b"), ""),
    (re.compile(r"^(?:make|paint|turn|have) (the [a-z]+) (?!into\b|to\b|have\b|be\b)"), r"\1 is "),
    (re.compile(r"\b(?:this|these|that|those) (?=[a-z]+ )"), "the "),
)
_WEIGHT_OF_ONE_READING = 0.5  # what an atom weighs that only one of two readings has


@dataclass(frozen=True)
class Wording:
    """One reading: a sentence, and its atoms."""

    sentence: str
    add: tuple[str, ...] = ()
    preserve: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: EditSpec | Edited) -> Wording:
        return cls(_short(spec.target, MAX_WORDS), spec.add, spec.preserve, spec.remove)


def in_common_words(wording: Wording) -> Wording:
    """Say "a vest" for "a sleeveless jacket": text towers know the one and hardly the other."""

    def reworded(text: str) -> str:
        for pattern, common in _paraphrases():
            text = pattern.sub(common, text)
        return " ".join(text.split())

    return replace(wording, sentence=reworded(wording.sentence), add=tuple(map(reworded, wording.add)))


@cache
def _paraphrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), common) for pattern, common in load("paraphrases.json"))


class GroundedFactorizer:
    """Reads picture and edit without a language model: the same input always gives the same spec."""

    name = NAME

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        self.seer: Seer | None = seer_of(encoder, folder)
        self._encoder = encoder
        self._tagger = Tagger(encoder, folder)

    def factorize(
        self, reference: Reference, edit: str, seen: Seen | None = None, more: Sequence[Reference] = ()
    ) -> Factorization:
        """Factorize an edit. `seen`: what the reference shows, if known. `more`: further references, read as well."""
        checked(edit)
        first = self._look(reference, seen)
        others = [self._look(other) for other in more]
        answer = read(*first, edit, more=others)
        # the pixels are looked at only where they matter
        is_asked = "colour photo" in answer.spec.add and is_grey(reference.image)
        return read(*first, edit, more=others, grey=True) if is_asked else answer

    def factorize_several(self, references: Sequence[Reference], edit: str) -> Factorization:
        """Read the edit of each reference."""
        return self.factorize(references[0], edit, more=references[1:])

    def _look(self, reference: Reference, seen: Seen | None = None) -> tuple[Seen | None, Tags]:
        vector = self._vector(reference)
        if seen is None and self.seer is not None:
            seen = self.seer.see(vector[None])[0]
        return seen, self._tagger.tag(vector)

    def _vector(self, reference: Reference) -> Float32:
        """Return the vector (d,) of the part that counts, so that the words speak of it."""
        if reference.crop is None:
            return np.asarray(reference.evidence.global_vectors[0], np.float32)
        left, top, right, bottom = reference.crop
        width, height = reference.image.size
        corner = min(round(left * width), width - 1), min(round(top * height), height - 1)
        box = (*corner, max(round(right * width), corner[0] + 1), max(round(bottom * height), corner[1] + 1))
        part = self._encoder.prepare(reference.image.crop(box))
        return np.asarray(self._encoder.encode_images([part]).global_vectors[0], np.float32)


def read(
    seen: Seen | None, tags: Tags, edit: str, *, more: Sequence[tuple[Seen | None, Tags]] = (), grey: bool = False
) -> Factorization:
    """Make a spec from the edit and what the picture shows, in words. `seen` is None without a captioner.

    `more`: what further references show; the edit is applied to each.
    """
    wish = read_wish(edit, seen.text if seen else "")
    details: dict[str, Any] = {"read as": wish.text, "tags": tags.to_dict()}
    details |= {"caption": seen.to_dict()} if seen else {}
    if wish.is_foreign:
        spec = EditSpec(_short(edit, MAX_WORDS), add=(_short(edit, MAX_ATOM_WORDS)[:120],))
        return Factorization(spec, NAME, wish.notes, {**details, "operations": []})
    if medium := medium_of(wish.text):
        return Factorization(_in_medium(medium, seen, tags), NAME, wish.notes, {**details, "operations": []})
    if grey:
        tags = Tags(tags.subject, {**tags.attributes, "tint": "black and white photo"}, tags.shares)
    edited = edit_caption(seen.text, wish.reading, sure=seen.sure, about=tags.subject) if seen else None
    ways = [Wording.of(edited)] if edited else []
    ways.append(Wording.of(ground(wish.text, wish.reading, _named(tags, seen))[0]))
    for other, their_tags in more:
        about = their_tags.subject
        ways += [Wording.of(edit_caption(other.text, wish.reading, sure=other.sure, about=about))] if other else []
        ways.append(Wording.of(ground(wish.text, wish.reading, _named(their_tags, other))[0]))
    ways = list(map(in_common_words, ways))
    gone = [_lemmas(phrase) for phrase in wish.reading.remove]
    atoms = _pooled(ways, gone)
    bare = [] if wish.reading.add else [way.sentence for way in ways[1::2]]  # a name says nothing of what goes
    edit_sentence = wish.text if wish.reading.add or wish.reading.keep else ""
    sentences = _sentences([way.sentence for way in ways if way.sentence not in bare], edit_sentence, gone)
    sentences = sentences or _sentences(bare, edit_sentence, gone) or [", ".join(atoms["add"]) or "a picture"]
    kind = kind_of_edit(wish.text, wish.reading, is_description=is_caption(wish.text), about=_named(tags, seen).subject)
    spec = EditSpec(sentences[0], **atoms, readings=sentences[1:], kind=kind)
    details |= {"operations": list(edited.steps) if edited else []}
    return Factorization(spec, NAME, _notes(seen, wish, edited, spec), details)


def _named(tags: Tags, seen: Seen | None) -> Tags:
    """Return the tags; where they name no subject, that of a sure caption."""
    if tags.subject or seen is None or not seen.sure:
        return tags
    caption = parse(seen.text)
    if caption.subject is None or not caption.subject.head:
        return tags
    name = " ".join(caption.subject.head)
    return Tags(name, tags.attributes, {**tags.shares, name: 0.0})  # the caption itself says what is kept of it


def apply(seen: Seen, edit: str) -> str:
    """Return the caption with the edit applied: what other methods ask a language model for."""
    wish = read_wish(edit, seen.text)
    if wish.is_foreign:
        return _short(edit, MAX_WORDS)
    return _short(edit_caption(seen.text, wish.reading, sure=seen.sure).target, MAX_WORDS) or "a picture"


def _in_medium(medium: str, seen: Seen | None, tags: Tags) -> EditSpec:
    """Read "a sketch of a dog": the thing stays, how the picture looks goes."""
    thing = tags.subject
    if not thing and seen is not None and (subject := parse(seen.text).subject) is not None:
        thing = " ".join(subject.head)
    if not thing:
        return EditSpec(with_article(medium), add=(medium,), kind="medium")
    kept = () if thing == medium else (thing,)
    return EditSpec(f"{with_article(medium)} of {with_article(thing)}", (medium,), kept, kind="medium")


def _sentences(ways: Sequence[str], edit: str, gone: Sequence[frozenset[str]]) -> list[str]:
    """Keep the sentences that are grammatical and without what the edit says must go; the edit itself comes last."""
    sentences = [way for way in ways if way != "A picture." and is_grammatical(way) and names_its_subject(way)]
    for pattern, said_plainly in _SAID_AROUND:
        edit = pattern.sub(said_plainly, edit).strip()
    sentences += [_short(edit, MAX_WORDS)] if edit and is_caption(edit) else []
    unique = {sentence.casefold().strip(" ."): sentence for sentence in reversed(sentences)}
    return [
        sentence for sentence in reversed(unique.values()) if not any(lemmas <= _lemmas(sentence) for lemmas in gone)
    ]


def _pooled(ways: Sequence[Wording], gone: Sequence[frozenset[str]]) -> dict[str, Any]:
    """Add, Remove and Preserve of all readings. What all of them have weighs more.

    No factor contradicts another: what the edit itself says must go (`gone`) is in no other atom, nothing else is
    removed that is also added, and nothing preserved that is removed.
    """
    lists = {name: [_unique(getattr(way, name)) for way in ways] for name in ("add", "remove", "preserve")}
    lists["add"] = [_unique(_without(atom, gone) for atom in atoms) for atoms in lists["add"]]
    used: list[frozenset[str]] = []
    pooled: dict[str, Any] = {}
    weights: dict[str, float] = {}
    for factor, several in lists.items():
        counts: Counter[frozenset[str]] = Counter()
        atom_of: dict[frozenset[str], str] = {}
        for atom in (atom for atoms in several for atom in atoms):
            lemmas = _lemmas(atom)
            if factor == "preserve":
                against = lemmas in used or any(key <= lemmas for key in map(_lemmas, pooled["remove"]))
            else:
                against = lemmas not in gone and any(lemmas <= key or key <= lemmas for key in used)
            if not against:
                atom_of.setdefault(lemmas, atom)
                counts[lemmas] += 1
        used += atom_of
        # "blue" is said by "blue car"; what the edit names to go is kept as it stands
        kept = [key for key in atom_of if key in gone or not any(key < other for other in atom_of)]
        agreed = {
            key for key in kept if sum(n for other, n in counts.items() if other <= key) >= sum(map(bool, several))
        }
        pooled[factor] = tuple(atom_of[key] for key in kept)[:MAX_ATOMS]
        weights |= {atom_of[key]: _WEIGHT_OF_ONE_READING for key in kept[:MAX_ATOMS] if key not in agreed}
    return {**pooled, "atom_weights": weights}


def _lemmas(atom: str) -> frozenset[str]:
    words = re.findall(r"[\w'-]+", atom.casefold())
    return frozenset(singular(word) for word in words if word not in ("a", "an", "the"))


def _without(atom: str, gone: Sequence[frozenset[str]]) -> str:
    """Take words out of an atom: "brown heels" without heels is brown."""
    for lemmas in gone:
        if lemmas <= _lemmas(atom):
            atom = " ".join(word for word in atom.split() if singular(word.casefold()) not in lemmas)
    return atom


def _notes(seen: Seen | None, wish: Wish, edited: Edited | None, spec: EditSpec) -> tuple[str, ...]:
    notes = [*wish.notes, *(edited.notes if edited else ())]
    if seen is None:
        notes.append("this encoder has no captioner: the picture is read by tags")
    elif seen.instead_of:
        notes.append(f'the tags are surer than the caption "{seen.instead_of}": the picture is read as "{seen.text}"')
    elif not seen.sure:
        notes.append(f'the caption "{seen.text}" is unsure: correct it on the page, or say in the edit what is meant')
    unknown = [word for word in wish.reading.unknown if not all(map(is_word, word.split("-")))]
    if unknown:
        notes.append(f"Unknown words, used as typed: {', '.join(unknown)}")
    if not spec.add and not spec.remove:
        notes.append("the edit names nothing definite to add or remove: the search leans on the reference picture")
    if len(wish.reading.add) > MAX_ATOMS or len(wish.reading.remove) > MAX_ATOMS:
        notes.append(f"the edit names more than {MAX_ATOMS} things: only the first of them are used")
    return tuple(notes)


def _unique(phrases: Iterable[str]) -> tuple[str, ...]:
    shortened = (_short(phrase, MAX_ATOM_WORDS)[:120].strip() for phrase in phrases)
    return tuple(dict.fromkeys(filter(None, shortened)))


def _short(text: str, words: int) -> str:
    """Make a text printable, of at most so many words."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(text.split()[:words])[:500].strip()


ROWS = (
    FactorizerRow(
        "grounded",
        "The edit read several ways, with the picture's caption; no language model.",
        lambda setting: GroundedFactorizer(setting.eyes),
        order=10,
        needs_encoder=True,
    ),
)
