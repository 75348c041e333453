"""The edit with its subject named: the words by rules, the subject and its attributes by the encoder's tags."""

from __future__ import annotations

import re

import numpy as np
from PIL import Image

from tapr.errors import BadInput
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading
from tapr.factorize.grammar.words import lexicon, plural_phrase, singular
from tapr.factorize.sentences import target_sentence
from tapr.factorize.tags import Tags, vocabulary
from tapr.query.spec import MAX_EDIT_CHARACTERS, EditSpec

MAX_ATOMS = 12  # of one factor; an edit with more is a story, and its first things matter most
MAX_ATOM_WORDS = 12
# of a subject tag: a vaguer word in Preserve would halve the weight of reference continuity for little
_MIN_SUBJECT_SHARE = 0.5
_GREY_SPREAD = 3  # largest mean difference of two colour channels, of 255, that a grey picture's JPEG shows


def checked(edit: str) -> str:
    """Return the edit, if it can be one."""
    if len(edit) > MAX_EDIT_CHARACTERS:
        what = f"the edit has {len(edit)} characters, more than the {MAX_EDIT_CHARACTERS} allowed: say it shorter"
        raise BadInput(what, code="too_large")
    if not re.search(r"[^\W_]", edit):
        what = 'the edit has no words: say what should be different, such as "in red" or "without people"'
        raise BadInput(what, code="empty_edit")
    return edit


def is_grey(image: Image.Image) -> bool:
    """Return whether this is a black and white picture, from its pixels, which cannot be wrong about it."""
    small = np.asarray(image.convert("RGB").resize((32, 32)), dtype=np.int16)  # (32, 32, 3)
    return bool((small.max(axis=2) - small.min(axis=2)).mean() <= _GREY_SPREAD)


def ground(edit: str, reading: Reading, tags: Tags) -> tuple[EditSpec, tuple[str, ...]]:
    """Complete a reading by the tags: what they add to Remove and Preserve, and the subject of Target."""
    subject = _subject(reading, tags)
    add = [_of_subject(atom, subject) for atom in reading.add]
    remove = list(dict.fromkeys([*reading.remove, *_replaced(reading, tags)]))
    scene = _kept_scene(reading, tags)
    keeps_subject = (
        tags.share(tags.subject) >= _MIN_SUBJECT_SHARE
        and not reading.replaces_subject
        and _same_family(subject, tags.subject)
    )
    kept_subject = subject if subject in vocabulary().family(tags.subject) else tags.subject
    preserve = [*reading.keep, kept_subject if keeps_subject and not reading.keep else "", scene]

    notes = []
    if reading.unknown:
        notes.append(f"Unknown words, used as typed: {', '.join(reading.unknown)}")
    if not add and not remove:
        notes.append("the edit names nothing definite to add or remove: the search leans on the reference picture")
    if len(add) > MAX_ATOMS or len(remove) > MAX_ATOMS:
        notes.append(f"the edit names more than {MAX_ATOMS} things: only the first of them are used")

    used: set[str] = set()
    added, removed = _unique([atom.text for atom in add], used), _unique(remove, used)
    kept = _unique(preserve, used)
    understood = reading.keep or reading.remove or reading.changed or reading.swaps or not _is_all_unknown(reading)
    understood = understood or (len(reading.add) == 1 and reading.add[0].determiner in ("a", "an"))
    target = target_sentence(subject, add, scene) or "A picture." if understood else _plain(edit)
    return EditSpec(target, add=added, preserve=kept, remove=removed), tuple(notes)


def _subject(reading: Reading, tags: Tags) -> str:
    """Return what Target speaks of: the edit's own words first, the picture's tag where the edit names a part of it."""
    if reading.replaces_subject:
        return reading.add[0].text if reading.add else ""
    if not reading.subject and tags.subject and any(atom.lead == "as" for atom in reading.add):
        return vocabulary().family(tags.subject)[0]  # "as a cook": what stays of a farmer is the person
    if reading.subject and not (reading.subject_is_known and tags.subject and not reading.keep):
        return reading.subject
    if reading.subject and _same_family(reading.subject, tags.subject):
        return reading.subject
    return tags.subject or reading.subject or next(iter(reading.keep), "")


def _of_subject(atom: Atom, subject: str) -> Atom:
    """Turn "two" of a bottle into "two bottles", "long" of a dress into "long dress"; leave other atoms alone."""
    lexis = lexicon()
    if not subject or atom.text == subject:
        return atom
    if atom.text in lexis.classes["numbers"]:
        name = singular(subject) if atom.text == "one" else plural_phrase(subject)
        return Atom(f"{atom.text} {name}")
    if atom.text in lexis.classes["sizes"]:
        return Atom(f"{atom.text} {subject}", determiner="a")
    return atom


def _replaced(reading: Reading, tags: Tags) -> list[str]:
    """Return what the picture shows in the place of what is added: only attributes of the same kind."""
    lexis = lexicon()
    gone = [tags.attributes[kind] for kind in sorted(reading.changed) if kind in tags.attributes]
    for atom in reading.add:
        quality = atom.text
        if tags.subject and quality.endswith(f" {tags.subject}"):
            quality = quality.removesuffix(f" {tags.subject}")
        kind = lexis.kind(quality)
        if kind is None and lexis.kind(quality.split()[-1]) == "style":
            kind = "style"
        seen = tags.attributes.get(kind or "")
        if seen and kind != "scene" and not set(seen.split()) & set(quality.split()) - {"colour", "photo"}:
            gone.append(seen)
    if reading.replaces_subject and tags.subject and not any(tags.subject in atom.text.split() for atom in reading.add):
        style = reading.add and lexis.kind(reading.add[0].text.split()[-1]) == "style"
        gone += [] if style else [tags.subject]
    return gone


def _kept_scene(reading: Reading, tags: Tags) -> str:
    """Return the picture's scene, unless the edit speaks of places or of another picture altogether."""
    lexis = lexicon()
    scene = tags.attributes.get("scene", "")
    if not scene or reading.changed & {"background", "place", "scene", "location", "setting"}:
        return ""
    own_subject = reading.subject and not reading.subject_is_known and not _same_family(reading.subject, tags.subject)
    speaks_of_places = any(
        atom.lead in lexis.classes["places"] or "background" in atom.text or lexis.kind(atom.text) in ("scene", "place")
        for atom in reading.add
    )
    return "" if own_subject or speaks_of_places or reading.replaces_subject else scene


def _same_family(phrase: str, tag: str) -> bool:
    """Return whether the phrase speaks of the tagged thing: "two puppies playing" of "dog"."""
    if not tag:
        return False
    words = " ".join(map(singular, phrase.split()))
    return any(f" {' '.join(map(singular, name.split()))} " in f" {words} " for name in vocabulary().family(tag))


def _is_all_unknown(reading: Reading) -> bool:
    words = {word for atom in reading.add for word in atom.text.split()}
    return bool(words) and words <= set(reading.unknown)


def _unique(phrases: list[str], used: set[str]) -> tuple[str, ...]:
    """Shorten atoms and keep each in one factor: Add goes before Remove, Remove before Preserve."""
    kept = []
    for phrase in phrases[:MAX_ATOMS]:
        short = " ".join(phrase.split()[:MAX_ATOM_WORDS])[:120].strip()
        if short and short.casefold() not in used:
            used.add(short.casefold())
            kept.append(short)
    return tuple(kept)


def _plain(edit: str) -> str:
    """Return the edit itself as Target, made printable and short."""
    text = "".join(letter if letter.isprintable() else " " for letter in edit)
    return " ".join(text.split()[:40])[:500].strip()
