"""Are ticks true? Precision and recall by kind of atom, on pictures whose colours, things and people are known.

    python benchmarks/ticks.py --data FOLDER [--sets emoji ...] [--choose] [--json FILE]

Sets, each skipped with a sentence where FOLDER has none of it (galleries are made once, in FOLDER/banks):
  emoji       Twemoji by their CLDR names: things, people, colours ("red apple")
  catalogue   FOLDER/catalogue: product photographs and labels.csv (file,colour,article)
  captioned   FOLDER/captioned: photographs and captions.json ({file: [captions]}): all five kinds
  photos      FOLDER/photos/*: photographs whose file names begin with what they show ("t-shirt_07.jpg")

An atom's cards are what a person would see: the 24 best pictures by its words alone, and the 24 best of a composed
search with a random reference (weight 0.4). Truth is what labels, names and captions say. Captions leave things out, so
precision on `captioned` is a lower bound; what they leave open (a bus of no colour) is not counted.
Pictures are split by their id: lines are fitted on one half (--choose) and everything is reported on the other.
Before: a cosine with a place above 19 of 20 unrelated pairs of the gallery. After: tapr.explain.calibration.
Intervals: 95 %, by drawing whole atoms again.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.encoders.registry import load_encoder
from tapr.evaluate.datasets.emoji_names import Emoji
from tapr.evaluate.datasets.emoji_names import pictures as emoji_pictures
from tapr.explain.calibration import Pictures, Won, contested, fit, judged, peaks_of_everyday_phrases
from tapr.explain.contests import Kind, claim_of, colours, materials
from tapr.factorize.grammar.words import plural_phrase, singular
from tapr.factorize.tags import vocabulary
from tapr.gallery import Gallery

CARDS, REFERENCE_WEIGHT, SEED = 24, 0.4, 23
KINDS = ("colour", "object", "person", "number", "material")
AGES = ("man", "woman", "boy", "girl", "child", "baby")
_SAID = {
    "man": {"man", "guy", "gentleman", "groom", "male", "father"},
    "woman": {"woman", "lady", "bride", "female", "mother"},
    "boy": {"boy"},
    "girl": {"girl"},
    "child": {"child", "kid", "boy", "girl", "toddler", "baby", "infant"},
    "baby": {"baby", "infant"},
}
_SOMEBODY = {
    "person", "people", "someone", "player", "skier", "surfer", "skateboarder", "snowboarder", "rider", "crowd",
    "couple", "family", "team", "adult", "batter", "pitcher", "catcher", "skater", "biker", "cyclist", "worker",
    "group", "one", "teen", "teenager", "passenger", "pedestrian", "human", "child", "kid", "toddler",
}  # fmt: skip
_MATERIAL_OF = {"wood": "wooden", "wool": "woollen", "steel": "metal", "iron": "metal", "metallic": "metal"}


# A catalogue has one word for each product where people have several: whether a top is a shirt is left open.
_OVERLAPPING = (
    {"shirt", "t-shirt", "top", "kurta", "sweatshirt", "sweater", "jacket"},
    {"shoes", "flat shoes", "heels", "sandals", "flip-flops"},
    {"trousers", "jeans", "shorts"},
    {"handbag", "backpack"},
    {"dress", "skirt", "kurta", "top"},
)


@dataclass(frozen=True)
class Asked:
    """One atom and what is known: id -> true or false; other pictures are left out."""

    kind: str
    atom: str
    truth: dict[str, bool]


@dataclass(frozen=True, eq=False)
class Cards:
    """One atom on its cards, in one half of one set."""

    data: str
    kind: str
    atom: str
    truth: NDArray[np.bool_]
    before: NDArray[np.bool_]
    words: list[str | None]
    won: dict[Kind, Won]
    is_whole: bool


# ---- what is known ---------------------------------------------------------------------------------------------------


def words_in(text: str) -> list[str]:
    return [singular(word) for word in re.findall(r"[a-z][a-z'-]*", text.lower())]


def mentions(text: str, name: str) -> bool:
    family = vocabulary().family(name)
    names = family if name == family[0] else (name,)
    said = f" {' '.join(words_in(text))} "
    return any(f" {' '.join(words_in(one))} " in said for one in names)


def things_of(texts: dict[str, str], least: int) -> Iterator[Asked]:
    for name in vocabulary().things:
        claim = claim_of(name)
        if len(claim.contests) != 1 or claim.contests[0].kind != "object":
            continue
        truth = {id_: mentions(text, name) for id_, text in texts.items()}
        if sum(truth.values()) >= least:
            yield Asked("object", name, truth)


def people_of(texts: dict[str, str], least: int) -> Iterator[Asked]:
    for name in AGES:
        truth = {}
        for id_, text in texts.items():
            said = set(words_in(text))
            if said & _SAID[name]:
                truth[id_] = True
            elif not said & _SOMEBODY:
                truth[id_] = False
        if sum(truth.values()) >= least:
            yield Asked("person", name, truth)
    for name in vocabulary().family("person")[1:]:
        truth = {id_: mentions(text, name) for id_, text in texts.items()}
        if name not in AGES and sum(truth.values()) >= least:
            yield Asked("person", name, truth)


def said_of(captions: list[str], values: dict[str, str], nouns: set[str]) -> dict[str, Counter[str]]:
    """noun -> what captions say right before it; "" where they say nothing of the kind."""
    out: dict[str, Counter[str]] = defaultdict(Counter)
    for caption in captions:
        words = words_in(caption)
        for place, word in enumerate(words):
            if word in nouns:
                near = []
                for earlier in reversed(words[max(0, place - 3) : place]):
                    if earlier in nouns and earlier not in values:
                        break
                    near.append(earlier)
                out[word][next((values[one] for one in near if one in values), "")] += 1
    return out


def qualities_of(
    kind: str, texts: dict[str, list[str]], values: dict[str, str], phrase: Callable[[str, str], str], least: int
) -> Iterator[Asked]:
    nouns = {singular(name) for name in vocabulary().things if " " not in name} - set(values)
    said = {id_: said_of(captions, values, nouns) for id_, captions in texts.items()}
    counts = Counter((value, noun) for one in said.values() for noun, c in one.items() for value in c if value)
    for (value, noun), count in sorted(counts.items()):
        if count < least or (kind == "number" and value == "one"):
            continue
        truth = {}
        for id_, one in said.items():
            if noun not in one:
                truth[id_] = False
            elif one[noun][value]:
                truth[id_] = True
            elif any(one[noun][other] for other in values.values()):
                truth[id_] = False
        yield Asked(kind, phrase(value, noun), truth)


def from_captions(texts: dict[str, list[str]]) -> Iterator[Asked]:
    joined = {id_: " . ".join(captions) for id_, captions in texts.items()}
    yield from things_of(joined, 4)
    yield from people_of(joined, 4)
    colour = {name: name for name in colours()} | {"gray": "grey"}
    yield from qualities_of("colour", texts, colour, lambda value, noun: f"{value} {noun}", 3)
    number = {name: name for name in ("one", "two", "three", "four", "five")} | {"a": "one", "an": "one"}
    yield from qualities_of("number", texts, number, lambda value, noun: f"{value} {plural_phrase(noun)}", 2)
    material = {name: name for name in materials()} | _MATERIAL_OF
    yield from qualities_of("material", texts, material, lambda value, noun: f"{value} {noun}", 2)


def from_names(emoji: list[Emoji]) -> Iterator[Asked]:
    names = {one.name: one.name for one in emoji}
    people = {one.name for one in emoji if one.category == "person"}  # their names do not say what they wear or hold
    for asked in things_of(names, 3):
        told = {id_: true for id_, true in asked.truth.items() if true or id_ not in people}
        yield Asked(asked.kind, asked.atom, told)
    yield from people_of(names, 3)
    colour = {name: name for name in colours()}
    texts = {id_: [name] for id_, name in names.items()}
    yield from qualities_of("colour", texts, colour, lambda value, noun: f"{value} {noun}", 1)


def from_labels(rows: list[dict[str, str]]) -> Iterator[Asked]:
    def is_open(one: str, other: str) -> bool:
        return one != other and any({one, other} <= group for group in _OVERLAPPING)

    for name in sorted({row["colour"] for row in rows}):
        yield Asked("colour", name, {row["file"]: row["colour"] == name for row in rows})
    for article in sorted({row["article"] for row in rows}):
        told = [row for row in rows if not is_open(row["article"], article)]
        yield Asked("object", article, {row["file"]: row["article"] == article for row in told})
        for name in sorted({row["colour"] for row in rows if row["article"] == article}):
            truth = {row["file"]: (row["colour"], row["article"]) == (name, article) for row in told}
            yield Asked("colour", f"{name} {article}", truth)


# ---- cards -----------------------------------------------------------------------------------------------------------


def half_of(id_: str) -> int:
    return hashlib.sha256(id_.encode()).digest()[0] % 2


def cards_of(data: str, gallery: Gallery, asked: list[Asked], half: int, encoder: Encoder) -> Iterator[Cards]:
    entries = [entry for entry in gallery.entries(range(len(gallery))) if half_of(entry.id) == half]
    block = gallery.gather(np.array([entry.row for entry in entries], np.int64))
    whole, places = np.asarray(block.global_vectors, np.float32), block.decoded()
    sure = float(np.quantile(peaks_of_everyday_phrases(encoder, places[:64]), 0.95))
    draw = np.random.default_rng(SEED)
    probes = encoder.encode_atoms([one.atom for one in asked])
    things = vocabulary().things  # rivals of every noun: once for all pictures
    parts = [Pictures(whole[i : i + 64], places[i : i + 64]) for i in range(0, len(whole), 64)]
    fits_of_things = np.concatenate([fit(things, part, encoder) for part in parts], axis=1)
    for one, probe in zip(asked, probes, strict=True):
        known = np.array([entry.id in one.truth for entry in entries])
        if not any(one.truth.get(entry.id) for entry in entries):
            continue
        peaks = (places @ probe).max(axis=1)
        words = (whole @ probe + 0.5 * peaks) / 1.5
        reference = int(draw.integers(len(entries)))
        composed = (1 - REFERENCE_WEIGHT) * words + REFERENCE_WEIGHT * (whole @ whole[reference])
        composed[reference] = -np.inf
        seen = np.unique(np.concatenate([np.argsort(-words)[:CARDS], np.argsort(-composed)[:CARDS]]))
        seen = seen[known[seen]]
        if not len(seen):
            continue
        claim = claim_of(one.atom)
        fits = dict(zip(things, fits_of_things[:, seen], strict=True))
        usual = dict(zip(things, fits_of_things.mean(axis=1).tolist(), strict=True))
        phrases = [name for contest in claim.contests for name in (contest.phrase, *contest.rivals) if name not in fits]
        if phrases:
            everywhere = fit(phrases, Pictures(whole, places), encoder)
            fits |= zip(phrases, everywhere[:, seen], strict=True)
            usual |= zip(phrases, everywhere.mean(axis=1).tolist(), strict=True)
        yield Cards(
            data, one.kind, one.atom,
            np.array([one.truth[entries[i].id] for i in seen]), peaks[seen] >= sure,
            list(judged(claim, fits, len(seen), usual)),
            {one.kind: contested(one, fits, usual) for one in claim.contests}, claim.whole,
        )  # fmt: skip


# ---- figures ---------------------------------------------------------------------------------------------------------


def figures(cards: list[Cards], ticked: Callable[[Cards], NDArray[np.bool_]]) -> dict[str, Any]:
    """Precision and recall over all cards, with intervals over atoms."""
    table = np.array([[(t := ticked(c)).sum(), (t & c.truth).sum(), c.truth.sum(), len(t)] for c in cards], float)

    def both(rows: NDArray[Any]) -> tuple[float, float]:
        ticks, right, true, _ = rows.sum(axis=0)
        return right / ticks if ticks else np.nan, right / true if true else np.nan

    draw = np.random.default_rng(SEED)
    again = np.array([both(table[draw.integers(0, len(table), len(table))]) for _ in range(1000)])
    (precision, recall), (low, high) = both(table), np.nanpercentile(again, (2.5, 97.5), axis=0)
    return {
        "atoms": len(cards), "cards": int(table[:, 3].sum()), "true": int(table[:, 2].sum()),
        "ticks": int(table[:, 0].sum()), "precision": precision, "precision_interval": [low[0], high[0]],
        "recall": recall, "recall_interval": [low[1], high[1]],
    }  # fmt: skip


def is_found(cards: Cards) -> NDArray[np.bool_]:
    return np.array([word == "found" for word in cards.words])


def is_likely(cards: Cards) -> NDArray[np.bool_]:
    return np.array([word in ("found", "maybe") for word in cards.words])


def percent(value: float, interval: Sequence[float] = ()) -> str:
    around = f" [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]" if len(interval) else ""
    return f"{100 * value:.0f}{around}"


def show(cards: list[Cards]) -> list[dict[str, Any]]:
    out = []
    print("P: precision, R: recall, in %; intervals of ticks in brackets")
    print(
        f"{'set':10} {'kind':9} {'atoms':>5} {'cards':>6} {'true':>5}  before P, R   ticks P, R {'':22}with maybe P, R"
    )
    for data in ("all", *dict.fromkeys(card.data for card in cards)):
        for kind in KINDS:
            some = [card for card in cards if card.kind == kind and data in ("all", card.data)]
            if not some:
                continue
            old, new, wide = (figures(some, rule) for rule in (lambda c: c.before, is_found, is_likely))
            out.append({"set": data, "kind": kind, "before": old, "after": new, "maybe": wide})
            p, r = new["precision_interval"], new["recall_interval"]
            size = f"{data:10} {kind:9} {new['atoms']:5} {new['cards']:6} {new['true']:5}"
            ticks = f"{percent(new['precision'], p)}, {percent(new['recall'], r)}"
            print(f"{size}  {percent(old['precision'])}, {percent(old['recall'])}   {ticks:35}", end="")
            print(f"{percent(wide['precision'])}, {percent(wide['recall'])}")
    return out


def choose(cards: list[Cards]) -> None:
    """Fits the line of each kind, and says where it must lie for a precision of 60 % (maybe) and of 80 to 85 %."""
    wanted_of: tuple[tuple[Kind, float], ...] = (("object", 0.8), ("person", 0.85), ("colour", 0.8))
    for kind, precision in wanted_of:
        some = [card for card in cards if card.kind == kind and kind in card.won and card.is_whole]
        evidence = np.concatenate([evidence_of(card, kind) for card in some])
        truth = np.concatenate([card.truth for card in some]).astype(float)
        weights = regression(evidence, truth)
        odds = evidence @ weights[:-1] + weights[-1]
        limits = [limit_of(odds, truth, wanted) for wanted in (0.6, precision)]
        print(f"{kind:9} weights {weights.round(2).tolist()}  maybe {limits[0]:.2f}  found {limits[1]:.2f}")


def evidence_of(card: Cards, kind: Kind) -> NDArray[np.float64]:
    """(cards, 3), or (cards, 7) of a colour: its own, its thing's, and whether it has one."""
    own = card.won[kind]
    columns = [own.margin, own.over_usual, own.better_rivals]
    if kind == "colour":
        thing, nothing = card.won.get("object"), np.zeros(len(own.margin))
        columns += [thing.margin, thing.over_usual, thing.better_rivals] if thing else [nothing] * 3
        columns.append(nothing + bool(thing))
    return np.stack(columns, axis=1)


def regression(evidence: NDArray[np.float64], truth: NDArray[np.float64], penalty: float = 1e-3) -> NDArray[np.float64]:
    """Logistic, by Newton's steps; the weights of what was given, and the constant."""
    mean, spread = evidence.mean(axis=0), evidence.std(axis=0) + 1e-9
    table = np.column_stack([(evidence - mean) / spread, np.ones(len(evidence))])
    weights, held = np.zeros(table.shape[1]), penalty * len(table) * np.append(np.ones(evidence.shape[1]), 0)
    for _ in range(40):
        chance = 1 / (1 + np.exp(-table @ weights))
        bend = (table * (chance * (1 - chance))[:, None]).T @ table + np.diag(held)
        weights += np.linalg.solve(bend, table.T @ (truth - chance) - held * weights)
    return np.append(weights[:-1] / spread, weights[-1] - (weights[:-1] * mean / spread).sum())


def limit_of(odds: NDArray[np.float64], truth: NDArray[np.float64], precision: float) -> float:
    """The lowest that still gives this precision."""
    order = np.argsort(-odds)
    right = np.flatnonzero(np.cumsum(truth[order]) / np.arange(1, len(truth) + 1) >= precision)
    return float(odds[order][right[-1]]) if len(right) else float("inf")


# ---- sets ------------------------------------------------------------------------------------------------------------


def sets(folder: Path, encoder: Encoder, names: Sequence[str] = ()) -> Iterator[tuple[str, Gallery, list[Asked]]]:
    """All, or those named."""

    def wanted(name: str) -> bool:
        return not names or name in names

    def gallery(name: str, images: Any) -> Gallery:
        path = folder / "banks" / name
        if (path / "manifest.json").exists():
            return Gallery.open(path, encoder=encoder)
        path.parent.mkdir(parents=True, exist_ok=True)
        return Gallery.build(path, images, encoder, captions=False)

    if wanted("emoji"):
        listing = folder / "banks" / "emoji.jsonl"
        listing.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": one.name, "path": str(one.path)} for one in emoji_pictures()]
        listing.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        yield "emoji", gallery("emoji", listing), list(from_names(emoji_pictures()))
    labels = folder / "catalogue" / "labels.csv"
    if wanted("catalogue") and labels.exists():
        with open(labels, newline="", encoding="utf-8") as file:
            yield "catalogue", gallery("catalogue", folder / "catalogue"), list(from_labels(list(csv.DictReader(file))))
    elif wanted("catalogue"):
        print(f"catalogue left out: there is no {labels}")
    captions = folder / "captioned" / "captions.json"
    if wanted("captioned") and captions.exists():
        told = json.loads(captions.read_text(encoding="utf-8"))
        yield "captioned", gallery("captioned", folder / "captioned"), list(from_captions(told))
    elif wanted("captioned"):
        print(f"captioned left out: there is no {captions}")
    if wanted("photos") and not (folder / "photos").is_dir():
        print(f"photos left out: there is no {folder / 'photos'}")
    for part in sorted((folder / "photos").glob("*/") if wanted("photos") else ()):
        photos = gallery(part.name, part)
        ids = [entry.id for entry in photos.entries(range(len(photos)))]
        yield part.name, photos, list(things_of({id_: shown_by(id_) for id_ in ids}, 2))


def shown_by(id_: str) -> str:
    """ "clothing/t-shirt_07.jpg" -> "t-shirt" """
    return re.sub(r"\d+", "", Path(id_).stem).replace("_", " ").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=(), choices=("emoji", "catalogue", "captioned", "photos"))
    parser.add_argument("--choose", action="store_true", help="fit the lines, on the half for choosing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    encoder = load_encoder("clip-b16")
    half = 0 if arguments.choose else 1
    cards = [
        card
        for name, gallery, asked in sets(arguments.data, encoder, arguments.sets)
        for card in cards_of(name, gallery, asked, half, encoder)
    ]
    if arguments.choose:
        choose(cards)
    rows = show(cards)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
