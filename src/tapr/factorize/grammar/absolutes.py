"""From relative wording to states that can be seen: "darker" -> "dark colour", "two more birds" -> "several birds"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tapr.factorize.grammar.patterns import pattern
from tapr.factorize.grammar.words import gerund, is_plural, lexicon, plural_phrase, singular

_COLOUR_WORDS = frozenset(("colour", "coloured", "colours", "colouring", "shade"))
_MEASURES = frozenset(("shape", "shaped", "form", "length", "size"))
_PLACED = frozenset(("set", "taken", "placed", "located", "shown", "situated", "photographed"))
_ARTICLES = ("a", "an", "the")


@dataclass(frozen=True)
class Absolute:
    """The meaning of one chunk once relative wording is gone."""

    add: str = ""
    remove: str = ""
    keep: str = ""
    changed: str = ""  # a dimension that differs in a way not said: "colour"


@dataclass(frozen=True)
class Manner:
    """The way to read a chunk, as the rule that found it says."""

    adding: bool = False  # "another dog" is one more dog, and not some other dog
    bare_verbs: bool = False  # "have the dog sit": the base form is a verb
    picture: bool = False  # said of the picture itself: "the photo is brighter"


PLAIN = Manner()


def absolute(words: Sequence[str], manner: Manner = PLAIN) -> Absolute:
    """Turn one chunk's words into an absolute phrase; relative words become the state they lead to."""
    text = re.sub(r" than (?!that).*$", "", " ".join(words))
    kept, vague = pattern("kept").match(text), pattern("vague").search(text)
    text = pattern("compared").sub("", text).strip()
    several = pattern("several").match(text)
    if several:
        text = text[several.end() :]
    if graded := pattern("graded").match(text):
        degree, rest = graded.groups()
        content = content_words(rest.split())
        if content:
            return _graded(degree, content, manner)
        whole = rest in ("", "them", "these", "it")  # "there are more of them", but not "more style"
        return Absolute(add=("many" if degree == "more" else "few") if whole else "")
    content = content_words(text.split())
    return _compared(content, bool(kept), bool(vague)) or _counted(content, bool(kept), several, manner)


def _compared(content: list[str], kept: bool, vague: bool) -> Absolute | None:
    """Read "the same colour", "a different angle", "a horse facing a different direction"."""
    lexis = lexicon()
    if not content:
        return Absolute()
    is_dimension = lexis.has("dimensions", content[-1]) or lexis.has("dimensions", singular(content[-1]))
    if kept and len(content) == 1:
        return Absolute(keep=content[0])
    if vague and is_dimension and len(content) == 1:
        return Absolute(changed=singular(content[0]))
    turns = [position for position, word in enumerate(content) if word.endswith("ing")]
    if vague and is_dimension and turns:
        return Absolute(add=settle(content[: turns[0]]), changed=content[-1])
    return None


def _counted(content: list[str], kept: bool, several: re.Match[str] | None, manner: Manner) -> Absolute:
    """Read "two more birds" as several birds; "another dog" only when dogs are added, else it is some other dog."""
    phrase = settle(content, manner)
    if several and phrase and (manner.adding or not several.group().startswith("another")):
        phrase = "several " + plural_phrase(re.sub(r"^(?:several|many|few|one|two) ", "", phrase))
    return Absolute(keep=phrase) if kept else Absolute(add=phrase)


def settle(words: Sequence[str], manner: Manner = PLAIN) -> str:
    """Join content words into a phrase: verbs as participles, comparatives as states, states before their noun."""
    lexis = lexicon()
    words = list(words)
    if len(words) > 2 and words[0] == "made" and words[1] in ("of", "from", "with"):
        words = words[2:]
    if words and words[0] in _PLACED:
        words = words[1:]
    words = _as_participles(_without_colour_word(words), manner)
    if len(words) > 1 and lexis.is_comparative(words[-1]) and not lexis.is_quality(words[-2]):
        words = [words[-1], *words[:-1]]  # "dog darker"
    canonical = lexis.meanings["canonical"]
    if len(words) == 1:
        word = lexis.positive(words[0]) or words[0]
        word = word if manner.picture else lexis.meanings["alone"].get(word, word)
        return canonical.get(word, word)
    words = [lexis.positive(word) or canonical.get(word, word) for word in words]
    if words and lexis.has("states", words[-1]) and words[0] not in lexis.inflections:
        words = [words[-1], *words[:-1]]  # "mouth open"
    if words and words[-1] in ("sleeve", "sleeved"):
        words[-1] = "sleeves"
    if words and words[-1] in _MEASURES and lexis.is_quality(words[-2]) and words[-2] != "full":
        return settle(words[:-1], manner)  # "round shape", "long length"
    while words and words[-1] in lexis.classes["determiners"]:
        words = words[:-1]
    return " ".join(words).replace("eachother", "each other")


def content_words(words: Sequence[str]) -> list[str]:
    """Drop determiners, adverbs and, where something else is left, words like "photo"."""
    lexis = lexicon()
    words = list(words)
    while words and words[0] in ("of", "to", "be", "is", "are"):
        words = words[1:]
    dropped = lexis.classes["determiners"] | lexis.classes["adverbs"]
    first = next((position for position, word in enumerate(words) if word not in dropped), len(words))
    kept = [
        word for position, word in enumerate(words) if word not in dropped or (position > first and word in _ARTICLES)
    ]
    if kept and kept[-1] in ("of", "to", "and", "is", "are", "for"):
        kept = kept[:-1]
    if kept == ["one"]:
        return [] if lexis.has("determiners", words[0]) else kept
    empty = lexis.classes["generic"] | lexis.classes["pronouns"]
    if kept and kept[-1] in empty:
        before = kept[:-1]
        if empty.issuperset(before):
            return []
        if all(lexis.is_quality(word) or lexis.is_comparative(word) or lexis.has("numbers", word) for word in before):
            kept = before  # "a bigger one" says only large
    if len(kept) >= 2 and kept[-2] == "of" and lexis.has("pronouns", kept[-1]):
        kept = kept[:-2]  # "two of them"
    return kept


def _graded(degree: str, words: list[str], manner: Manner) -> Absolute:
    """Read "more formal" as formal; "less formal" as casual, not formal; "more people" as many people."""
    lexis = lexicon()
    noun = words[-1]
    rises = degree in ("more", "most")
    if rises and lexis.is_comparative(words[0]):  # "more taller"
        return Absolute(add=settle(words, manner))
    is_noun = not lexis.is_quality(noun) and (
        is_plural(noun) or lexis.has("mass nouns", noun) or lexis.has("dimensions", noun) or noun in lexis.things
    )
    is_described = len(words) > 1 and lexis.is_quality(words[0]) and not is_plural(noun)  # "more colourful background"
    if is_noun and not is_described:
        return Absolute(add=f"{'many' if rises else 'few'} {settle(words, manner) if len(words) > 1 else noun}")
    phrase = settle(words, manner)
    if rises:
        return Absolute(add=phrase)
    return Absolute(add=lexis.meanings["opposites"].get(noun, "") if len(words) == 1 else "", remove=phrase)


def _without_colour_word(words: list[str]) -> list[str]:
    """Turn "pink coloured", "red colour" into the colour, "light coloured" into light colour."""
    out: list[str] = []
    for word in words:
        if word in _COLOUR_WORDS and out and lexicon().is_colour(out[-1]):
            continue
        out.append("colour" if word == "coloured" and out else word)
    return out


def _as_participles(words: list[str], manner: Manner) -> list[str]:
    """Turn "dog runs" into "dog running", where the place in the phrase says that the word is a verb."""
    out = list(words)
    for position, word in enumerate(words):
        verb = lexicon().inflections.get(word)
        if verb and not word.endswith("ing") and _is_verb(words, position, verb, manner):
            out[position] = gerund(verb)
            manner = replace(manner, bare_verbs=False)
    return out


def _is_verb(words: list[str], position: int, verb: str, manner: Manner) -> bool:
    lexis = lexicon()
    word = words[position]
    before = words[position - 1] if position else ""
    after = words[position + 1] if position + 1 < len(words) else ""
    if after == "by" or lexis.has("bound participles", word):
        return False
    if not before:
        return (manner.bare_verbs and not lexis.is_quality(word)) or (after in _ARTICLES and word != "face")
    if lexis.is_quality(before) or lexis.has("numbers", before) or before in ("of", *_ARTICLES):
        return False
    closes = after in ("", *_ARTICLES) or any(
        lexis.has(group, after) for group in ("places", "directions", "numbers", "adverbs")
    )
    closes = closes or after in ("to", "toward", "towards", "away", "together")
    if word == verb:
        return manner.bare_verbs or (is_plural(before) and closes) or after in _ARTICLES
    return closes or not lexis.has("nouns like verbs", word)
