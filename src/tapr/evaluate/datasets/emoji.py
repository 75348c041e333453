"""EmojiCIR: composed queries over Twemoji whose right answers, captions and factors all follow from CLDR's names.

Every method's record is written by rule from the same names, so none knows more than another. Five kinds of edit:
tone, gender, role (what a person is or does), object (another thing, another colour) and face (another expression).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split
from tapr.evaluate.datasets.emoji_names import TONES, Emoji, phrase, pictures
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.methods.record_kinds import derive
from tapr.query.spec import EditSpec

SPLITS = ("test", "val", "mini")
MINI = 120  # queries and about as many pictures again: for CI
_METRICS = metrics("mAP@5", "mAP@10", "Hit@1", "Hit@5", "Hit@10", "Hit@50")
_COLOURS = (
    "red",
    "orange",
    "yellow",
    "green",
    "light blue",
    "blue",
    "purple",
    "pink",
    "brown",
    "black",
    "white",
    "grey",
)
_COLOURED = re.compile(rf"({'|'.join(_COLOURS)}) (heart|book|apple)$")
_FACE = re.compile(r"(?:(.+) )?(face|cat)(?: (with .+))?$")
_SWAPPED = ("Animals & Nature", "Food & Drink", "Travel & Places", "Activities", "Objects")


@dataclass(frozen=True)
class Triplet:
    kind: str
    reference: Emoji
    edit: str
    right: tuple[str, ...]
    spec: EditSpec


def load(split: str | None = None) -> Dataset:
    """`val` (a fifth of the references) is for choosing weights, `test` for reporting, `mini` a subset of test."""
    split = choose_split(split, SPLITS, "EmojiCIR")
    gallery = pictures()
    triplets = [found for found in triplets_of(gallery) if (_hash(found.reference.name) % 5 == 0) == (split == "val")]
    if split == "mini":
        triplets = sorted(triplets, key=lambda found: _hash(found.edit + found.reference.name))[:MINI]
        named = {name for found in triplets for name in (found.reference.name, *found.right)}
        gallery = [emoji for emoji in gallery if emoji.name in named or _hash(emoji.name) % 16 == 0]
    queries, records = [], {}
    for number, found in enumerate(triplets):
        query_id = f"{found.kind}-{number}"
        queries.append(Query(query_id, found.reference.name, found.edit, found.right, groups=(found.kind,)))
        records[query_id] = derive(found.spec, found.edit, found.reference.name)
    counts = ", ".join(f"{kind} {count}" for kind, count in Counter(found.kind for found in triplets).items())
    protocol = Protocol(
        dataset="EmojiCIR",
        split=split,
        gallery=f"{len(gallery):,} Twemoji pictures",
        keep_reference=False,
        edit_text=f"written by rule from CLDR names ({counts})",
        metrics=_METRICS,
        main=Metric("mAP", 10),
        grouped=metrics("mAP@10", "Hit@1"),
        tunable=split == "val",
    )
    names = tuple(emoji.name for emoji in gallery)
    return Dataset(
        protocol,
        (Part("all", names, tuple(queries)),),
        {emoji.name: emoji.path for emoji in gallery},
        notes=("Pictures: Twemoji, copyright its contributors, CC BY 4.0; names: Unicode CLDR",),
        records=records,
    )


def triplets_of(gallery: Sequence[Emoji]) -> list[Triplet]:
    """The same list on every machine: choices follow from hashes of names."""
    return [*_people(gallery), *_colours(gallery), *_faces(gallery), *_swaps(gallery)]


def _people(gallery: Sequence[Emoji]) -> Iterator[Triplet]:
    people = [emoji for emoji in gallery if emoji.category == "person"]
    known = {emoji.name for emoji in people}
    roles = sorted({emoji.doing for emoji in people if _is_role(emoji.doing)})
    acts = sorted({emoji.doing for emoji in people if not _is_role(emoji.doing)})
    for person in people:
        who, doing, tone = person.gender, person.doing, person.tone
        skin = f"{tone} skin"

        other = _pick([name for name in TONES if name != tone], person.name)
        target = phrase(who, doing, other)
        if target in known:
            spec = EditSpec(target, (f"{other} skin",), (who, _atom(doing)), (skin,))
            yield Triplet("tone", person, f"the same person, but with {other} skin", (target,), spec)

        gender = "woman" if who == "man" else "man"
        target = phrase(gender, doing, tone)
        if target in known and _hash("gender" + person.name) % 2:
            spec = EditSpec(target, (gender,), (_atom(doing), skin), (who,))
            yield Triplet("gender", person, f"the same, but a {gender} instead of a {who}", (target,), spec)

        doings = roles if doing in roles else acts
        new = _pick([name for name in doings if name != doing], "role" + person.name)
        target = phrase(who, new, tone)
        if target in known:
            spec = EditSpec(target, (_atom(new),), (who, skin), (_atom(doing),))
            edit = (
                f"the same person as {_a(new)} instead of {_a(doing)}" if doing in roles else f"the same person, {new}"
            )
            yield Triplet("role", person, edit, (target,), spec)


def _colours(gallery: Sequence[Emoji]) -> Iterator[Triplet]:
    """Hearts, books and apples in other colours."""
    coloured = {emoji.name: match for emoji in gallery if (match := _COLOURED.match(emoji.name))}
    for emoji in gallery:
        if emoji.name not in coloured:
            continue
        colour, thing = coloured[emoji.name].groups()
        for target, match in coloured.items():
            if match[2] == thing and target != emoji.name:
                spec = EditSpec(target, (f"{match[1]} colour",), (thing,), (f"{colour} colour",))
                yield Triplet("object", emoji, f"the same in {match[1]}", (target,), spec)


def _faces(gallery: Sequence[Emoji]) -> Iterator[Triplet]:
    """A face with another look: right are all faces whose name says so; and a cat with the same expression."""
    faces = {
        emoji.name: (emoji, match)
        for emoji in gallery
        if emoji.category == "Smileys & Emotion" and (match := _FACE.match(emoji.name))
    }
    looks = sorted({look for _, match in faces.values() if match[2] == "face" for look in (match[1], match[3]) if look})
    for name, (emoji, match) in faces.items():
        own = tuple(look for look in (match[1], match[3]) if look)
        swapped = name.replace(match[2], "cat" if match[2] == "face" else "face")
        if swapped in faces:
            now, before = ("cat", "human face") if match[2] == "face" else ("human face", "cat")
            spec = EditSpec(swapped, (now,), tuple(map(_atom, own)), (before,))
            yield Triplet("face", emoji, f"a {now} with the same expression", (swapped,), spec)
        if match[2] == "cat":
            continue
        others = [look for look in looks if not set(look.split()) & set(name.split()) - {"with"}]
        for turn in range(3):
            look = _pick(others, f"{turn}{name}")
            right = tuple(other for other, (_, found) in faces.items() if found[2] == "face" and look in found.groups())
            target = f"face {look}" if look.startswith("with ") else f"{look} face"
            spec = EditSpec(target, (_atom(look),), ("face",), tuple(map(_atom, own)))
            yield Triplet("face", emoji, f"the same face, but {look}", right, spec)


def _swaps(gallery: Sequence[Emoji]) -> Iterator[Triplet]:
    """Another thing of the same group: right is every picture of the group whose name holds the new thing's words."""
    for category in _SWAPPED:
        names = [emoji.name for emoji in gallery if emoji.category == category]
        for emoji in gallery:
            if emoji.category != category:
                continue
            new = _pick(
                [name for name in names if not set(name.split()) & set(emoji.name.split())], "swap" + emoji.name
            )
            right = tuple(name for name in names if f" {new} " in f" {name} ")
            spec = EditSpec(new, (new,), (), (emoji.name,))
            edit = f"{_a(new)} instead of {_a(emoji.name)}"
            yield Triplet("object", emoji, edit, (new, *(name for name in right if name != new)), spec)


def _is_role(doing: str) -> bool:
    return not doing.startswith(("with", "in ", "wearing", "bald", "standing")) and not re.search(r"ing\b", doing)


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def _atom(look: str) -> str:
    """A phrase that can stand alone."""
    return look.removeprefix("with ")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _pick(options: Sequence[str], seed: str) -> str:
    return options[_hash(seed) % len(options)]


ROWS = (
    DatasetRow(
        "emoji",
        "EmojiCIR: made here from Twemoji and CLDR names; nothing to download.",
        lambda data, split, gallery: load(split),
        titles=("EmojiCIR",),
        splits="test (default), val or mini.",
        development={"test": "val", "mini": "val"},
        order=80,
        needs_data=False,
    ),
)
