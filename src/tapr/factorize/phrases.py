"""From the words of a clause to atoms: chunked at "with" and at places, made absolute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tapr.factorize.words import gerund, is_plural, lexicon, plural_phrase, singular

Role = Literal["thing", "quality", "action", "view"]
_BEARERS = {  # words that open "what it has", and the preposition they become in Target
    "with": "with", "has": "with", "have": "with", "having": "with", "had": "with", "contains": "with",
    "containing": "with", "featuring": "with", "features": "with", "including": "with", "that": "", "which": "", "who": "",
    "where": "", "wearing": "wearing", "wears": "wearing", "wear": "wearing", "shows": "with", "showing": "with",
    "includes": "with", "plus": "with", "as": "as", "in-which": "", "saying": "with", "says": "with", "reading": "with",
}  # fmt: skip
_VIEW_KINDS = frozenset(("viewpoint", "tint", "time", "weather", "season", "place"))
_ALSO_NOUNS = frozenset(
    "plays faces cuts looks calls parks rests runs walks rides drinks hands ties bows waves watches brushes combs drums paints packs "
    "swings slides stretches kicks hits turns points falls works dances races clothes lies jumps surfs skis shares stacks calls lands "
    "cooks throws rolls covers wraps tops stares cycles pets bends crosses texts types dives catches hugs smiles drinks lay".split()
)
_SEVERAL = re.compile(
    r"^(?:(?:one|two|three|four|five|a few|few|many|some)(?: more| extra| additional)|(?:more )?another|extra|additional|second|third)\s+(?=\w)"
)


@dataclass(frozen=True)
class Atom:
    """One constraint in words, and how it hangs in a sentence: "on" + "a" + "wooden table"."""

    text: str
    lead: str = ""
    determiner: str = ""

    @property
    def role(self) -> Role:
        return role_of(self.text)


@dataclass
class Absolute:
    """What one chunk says once relative wording is gone."""

    add: str = ""
    remove: str = ""
    keep: str = ""
    changed: str = ""  # a dimension that differs in a way not said: "colour"


@dataclass(frozen=True)
class Manner:
    """How a chunk is to be read, known only to the rule that found it."""

    adding: bool = False  # "another dog" is one more dog, and not some other dog
    bare_verbs: bool = False  # "have the dog sit": the base form is a verb
    picture: bool = False  # said of the picture itself: "the photo is brighter"


PLAIN = Manner()


@dataclass
class Chunk:
    lead: str
    words: list[str] = field(default_factory=list)

    @property
    def determiner(self) -> str:
        return self.words[0] if self.words and self.words[0] in lexicon().classes["determiners"] else ""


def role_of(phrase: str) -> Role:
    lexis = lexicon()
    if lexis.kind(phrase) in _VIEW_KINDS:
        return "view"
    words = phrase.split()
    if words[0] in lexis.classes["bound participles"] or (
        words[0].endswith("ing") and words[0] in lexis.inflections and not (len(words) == 2 and words[0] == "lying")
    ):
        return "action"
    if lexis.kind(phrase) or phrase in lexis.meanings["alone"].values():
        return "quality"
    rest = [word for word in words if word not in ("and", "the", "off", "length", "in")]
    return "quality" if rest and all(map(lexis.is_quality, rest)) else "thing"


def chunks(words: Sequence[str]) -> list[Chunk]:
    """Cut at words of having and at places; "in the background" and "at the camera" stay with what they follow."""
    lexis = lexicon()
    out = [Chunk("")]
    index = 0
    while index < len(words):
        word, rest = words[index], words[index + 1 :]
        fixed = _fixed_place(word, rest)
        if fixed and out[-1].words:
            out[-1].words += [word, *rest[:fixed]]
            index += fixed
        elif out[-1].words and _is_bound(out[-1].words, word, rest):
            out[-1].words.append(word)
        elif out[-1].lead in ("with", "wearing") and out[0].words and _is_main_verb(out[-1].words, word, rest):
            out[0].words.append(word)
        elif word in _BEARERS:
            out.append(Chunk(_BEARERS[word]))
        elif word in lexis.classes["places"]:
            out.append(Chunk(word))
        else:
            out[-1].words.append(word)
        index += 1
    return [chunk for chunk in out if chunk.words and not _is_idle_place(chunk)]


def absolute(words: Sequence[str], manner: Manner = PLAIN) -> Absolute:
    """One chunk's words as an absolute phrase; relative words become the state they lead to."""
    lexis = lexicon()
    text = " ".join(words)
    text = re.sub(r" than (?!that).*$", "", text)
    kept = re.search(r"\b(?:same|identical)(?: exact)?(?: (?:breed|kind|type|species|sort|style)s? of)?\b", text)
    vague = re.search(r"\b(?:different|other|various|alternative)\b", text)
    text = re.sub(r"\b(?:same|identical|similar|different|other|another|various|alternative) (?:breed|kind|type|species|sort|set|style|group|type)s? of\b", "", text)  # fmt: skip
    text = re.sub(r"\b(?:same|identical|similar|different|various|alternative|other|exact|certain)\b", "", text).strip()
    text = re.sub(r"^(?:the|a|an|some|its|their|his|her|all|all of)\s+(?=another|extra|second|third|additional)", "", text)
    several = _SEVERAL.match(text)
    if several:
        text = text[several.end() :]
    many = re.match(r"^(?:(?:a|some|the|much|far|way|even|many) )*(more|less|fewer|one less|least|most)\b\s*(?:of\s+)?(?:the |a |an )?(.*)$", text)
    remaining = _content((many.group(2) if many else text).split())
    if many and remaining:
        return _graded(many.group(1), remaining, manner)
    if many:
        whole = many.group(2) in ("", "them", "these", "it")
        return Absolute(add=("many" if many.group(1) == "more" else "few") if whole else "")
    dimension = bool(remaining) and (lexis.has("dimensions", remaining[-1]) or lexis.has("dimensions", singular(remaining[-1])))
    if (kept or vague) and len(remaining) <= 1 and (dimension or kept):
        phrase = " ".join(remaining)
        return Absolute(keep=phrase) if kept else Absolute(changed=phrase.rstrip("s") if phrase else "")
    turns = [position for position, word in enumerate(remaining) if word.endswith("ing")]
    if vague and dimension and turns:  # "a horse facing a different direction"
        return Absolute(add=settle(remaining[: turns[0]], manner), changed=remaining[-1])
    if not remaining:
        return Absolute()
    phrase = settle(remaining, manner)
    if several and phrase and (manner.adding or several.group(0).split()[0] != "another"):
        phrase = "several " + plural_phrase(re.sub(r"^(?:several|many|few|one|two) ", "", phrase))
    return Absolute(keep=phrase) if kept else Absolute(add=phrase)


def settle(words: Sequence[str], manner: Manner = PLAIN) -> str:
    """Content words -> phrase: verbs as participles, comparatives as states, states before their noun."""
    lexis = lexicon()
    if len(words) > 2 and words[0] == "made" and words[1] in ("of", "from", "with"):
        words = words[2:]
    if words and words[0] in ("set", "taken", "placed", "located", "shown", "situated", "photographed"):
        words = words[1:]
    words = _as_participles(_without_colour_word(list(words)), manner)
    if not words:
        return ""
    if len(words) > 1 and lexis.is_comparative(words[-1]) and not lexis.is_quality(words[-2]):
        words = [words[-1], *words[:-1]]  # "dog darker"
    lone = len(words) == 1
    words = [lexis.positive(word) or lexis.meanings["canonical"].get(word, word) if not lone else word for word in words]
    if lone:
        word = lexis.positive(words[0]) or words[0]
        if not manner.picture:
            word = lexis.meanings["alone"].get(word, word)
        words = [lexis.meanings["canonical"].get(word, word)]
    if len(words) > 1 and lexis.has("states", words[-1]) and words[0] not in lexis.inflections:
        words = [words[-1], *words[:-1]]
    if len(words) > 1 and words[-1] in ("sleeve", "sleeved"):
        words[-1] = "sleeves"
    if len(words) > 1 and words[-1] in ("shape", "shaped", "form", "length", "size") and lexis.is_quality(words[-2]) and words[-2] != "full":
        return settle(words[:-1], manner)
    while words and words[-1] in lexis.classes["determiners"]:
        words = words[:-1]
    return " ".join(words)


def atoms_in(words: Sequence[str], manner: Manner = PLAIN) -> list[tuple[Atom | None, Absolute]]:
    """Every chunk of the words, as an atom to add where it says one, with all else it says."""
    read = []
    for position, chunk in enumerate(chunks(words)):
        said = absolute(chunk.words, manner if position == 0 else replace(manner, adding=False, bare_verbs=False))
        read.append((Atom(said.add, chunk.lead, chunk.determiner) if said.add else None, said))
    return read


def _graded(degree: str, words: list[str], manner: Manner) -> Absolute:
    """ "more formal" -> formal; "less formal" -> casual, not formal; "more people" -> many people."""
    lexis = lexicon()
    noun = words[-1]
    if lexis.positive(words[0]) and degree in ("more", "most"):  # "more taller"
        return Absolute(add=settle(words, manner))
    is_noun = not lexis.is_quality(noun) and (
        is_plural(noun) or lexis.has("mass nouns", noun) or lexis.has("dimensions", noun) or noun in lexis.things
    )
    if is_noun and not (len(words) > 1 and lexis.is_quality(words[0]) and not is_plural(noun)):
        amount = "many" if degree in ("more", "most") else "few"
        return Absolute(add=f"{amount} {settle(words, manner) if len(words) > 1 else noun}")
    if degree in ("more", "most"):
        return Absolute(add=settle(words, manner))
    phrase = settle(words, manner)
    opposite = lexis.meanings["opposites"].get(words[-1], "") if len(words) == 1 else ""
    return Absolute(add=opposite, remove=phrase)


def _content(words: list[str]) -> list[str]:
    """Without determiners, adverbs and, where something else is left, words like "photo"."""
    lexis = lexicon()
    dropped = lexis.classes["determiners"] | lexis.classes["adverbs"]
    while words and words[0] in ("of", "to", "be", "is", "are"):
        words = words[1:]
    kept = [word for position, word in enumerate(words) if word not in dropped or _is_inner(words, position)]
    if kept and kept[-1] in ("of", "to", "and", "is", "are", "for"):
        kept = kept[:-1]
    if kept == ["one"]:
        return kept if not lexis.has("determiners", words[0]) else []
    if kept and (lexis.has("generic", kept[-1]) or lexis.has("pronouns", kept[-1])):
        before = kept[:-1]
        if all(word in lexis.classes["generic"] or word in lexis.classes["pronouns"] for word in before):
            return []
        if all(lexis.is_quality(word) or lexis.is_comparative(word) or word in lexis.classes["numbers"] for word in before):
            kept = before  # "a bigger one" says only large
    if len(kept) >= 2 and kept[-2] == "of" and lexis.has("pronouns", kept[-1]):
        kept = kept[:-2]  # "two of them"
    return kept


def _is_inner(words: list[str], position: int) -> bool:
    """An article inside a phrase ("holding a fish") stays; possessives and those in front go."""
    return words[position] in ("a", "an", "the") and any(
        word not in lexicon().classes["determiners"] | lexicon().classes["adverbs"] for word in words[:position]
    )


def _without_colour_word(words: list[str]) -> list[str]:
    """ "pink coloured", "red colour", "green in colour" -> the colour; "light coloured" -> light colour."""
    lexis = lexicon()
    out: list[str] = []
    for word in words:
        if word in ("colour", "coloured", "colours", "colouring", "shade") and out:
            if lexis.is_colour(out[-1]):
                continue
            if word == "coloured":
                word = "colour"
        out.append(word)
    return out


def _as_participles(words: list[str], manner: Manner) -> list[str]:
    """ "dog runs" -> "dog running", where the place in the phrase says that the word is a verb."""
    lexis = lexicon()
    out = list(words)
    for position, word in enumerate(words):
        verb = lexis.inflections.get(word)
        if verb is None or word.endswith("ing"):
            continue
        before = words[position - 1] if position else ""
        after = words[position + 1] if position + 1 < len(words) else ""
        closes = after in ("", "a", "an", "the") or any(
            lexis.has(group, after) for group in ("places", "directions", "numbers", "adverbs")
        ) or after in ("to", "toward", "towards", "away", "together")
        if after == "by" or lexis.has("bound participles", word):
            is_verb = False
        elif not position:
            is_verb = (manner.bare_verbs and not lexis.is_quality(word)) or (after in ("a", "an", "the") and word != "face")
        elif lexis.is_quality(before) or lexis.has("numbers", before) or before in ("of", "a", "an", "the"):
            is_verb = False
        elif word == verb:
            is_verb = manner.bare_verbs or (is_plural(before) and closes) or after in ("a", "an", "the")
        else:
            is_verb = closes or word not in _ALSO_NOUNS
        if is_verb:
            out[position] = gerund(verb)
            manner = replace(manner, bare_verbs=False)
    return out


def _fixed_place(word: str, rest: Sequence[str]) -> int:
    """How many words after the preposition make a fixed place such as "in the background"."""
    if word not in ("in", "on", "at", "to"):
        return 0
    skip = 1 if rest and rest[0] in ("the", "a", "its") else 0
    end = rest[skip] if len(rest) > skip else ""
    follows = rest[skip + 1] if len(rest) > skip + 1 else ""
    return skip + 1 if lexicon().has("place ends", end) and follows not in ("of", "seat", "wall") else 0


def _is_bound(current: list[str], word: str, rest: Sequence[str]) -> bool:
    """Does the preposition belong to the verb before it: "covered with snow", "looking at the camera"?"""
    lexis = lexicon()
    last = current[-1]
    if lexis.has("bound participles", last) and word in ("with", "in", "by", "into", "on"):
        return word in ("with", "by", "into") or last in ("covered", "wrapped")
    target = [item for item in rest[:3] if item not in ("the", "a", "its", "his", "her")]
    if word in lexis.classes["places"] and target and lexis.has("directions", target[0]):
        return True
    return word == "by" and last.endswith("ed")


def _is_main_verb(current: list[str], word: str, rest: Sequence[str]) -> bool:
    """In "a dog with a collar sits on grass" the verb belongs to the dog."""
    lexis = lexicon()
    verb = lexis.inflections.get(word, word)
    if not current or word == verb or lexis.is_quality(current[-1]) or (word.endswith("ing") and not is_plural(current[-1])):
        return False
    return not rest or rest[0] in lexis.classes["places"] | lexis.classes["directions"]


def _is_idle_place(chunk: Chunk) -> bool:
    """ "on it", "in its mouth", "at the waist": places that say nothing about what is seen."""
    lexis = lexicon()
    if chunk.lead not in lexis.classes["places"]:
        return False
    words = [word for word in chunk.words if word not in ("the", "a", "an")]
    if words and words[-1] in ("colour", "colours", "length") and len(words) == 1:
        return True
    return not words or words[0] in lexis.classes["possessives"] or lexis.has("dropped places", words[0]) and len(words) == 1
