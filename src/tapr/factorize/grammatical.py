"""Whether a sentence could be a caption: what fails is neither shown nor searched with."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from tapr.factorize.grammar.words import is_plural, lexicon, singular
from tapr.factorize.parts_of_speech import parts_of_speech

_ARTICLES = frozenset(("a", "an", "the"))
_BE = frozenset(("is", "are", "was", "were"))
_LEADS = frozenset(
    ("with", "without", "of", "in", "on", "at", "by", "near", "under", "over", "into", "onto", "from", "for", "behind")
)
_OPEN = _ARTICLES | _LEADS | {"and", "or", "wearing", "holding"}  # a sentence does not end with these
# negation, comparison and orders: said of the difference, not of a picture
_NO_CAPTION = re.compile(
    r"\b(?:no|not|without|never|instead|rather|same|different|other|another|more|less|than|make|change|remove|replace|add|"
    r"turn|put|swap|keep|please|should|must|needs|it|its|this|that|these|them|they|i|you|me|like|such|nothing|nobody|how|"
    r"what|which|why|does|ones?|longer|shorter|darker|lighter|bigger|smaller)\b"
)
_WORD = re.compile(r"[\w'-]+|[,.;:?!]")


def is_grammatical(sentence: str) -> bool:
    """Phrases begin after prepositions and articles, no clause has two verbs, no thing is named twice."""
    words = [word for word in _WORD.findall(sentence.casefold()) if word[0].isalnum() or word == ","]
    if not words or words[-1] in _OPEN or words[-1] == "," or words[-1].endswith("'s"):
        return False
    if sum(word in _BE for word in words) > 1:
        return False
    return all(map(_follows, words, words[1:])) and not _names_twice(words)


def is_caption(sentence: str) -> bool:
    """Grammatical, and says what a picture shows, not how it differs from another: it begins with the thing."""
    words = re.findall(r"[a-z'-]+", sentence.casefold())
    if not words or words[0] in _LEADS | lexicon().classes["places"] or words[0].endswith("ing"):
        return False
    named = any(_is_noun(word) for word in words) and not _is_participle(words[0])
    return named and not _NO_CAPTION.search(sentence.casefold()) and is_grammatical(sentence)


def _follows(word: str, after: str) -> bool:
    """May the one stand before the other?"""
    if word in _ARTICLES:
        return after not in _OPEN - {"holding"} and after not in _BE and after != ","
    if word in _LEADS:
        return (
            after not in _BE
            and after != ","
            and (after not in _LEADS or word == "from")
            and parts_of_speech(after)[:1] != "r"
        )
    if word.endswith("ing") and after in _BE:
        return False
    if after.endswith("ing") and word != after and _verb(word) and _verb(word) == _verb(after):
        return False  # "a dog runs running"
    if word == "and":
        return after not in ("and", ",", *_BE)
    return True


def _verb(word: str) -> str:
    return lexicon().inflections.get(word, "")


def _is_participle(word: str) -> bool:
    """ "held in a hand", "worn by a man"."""
    return word in lexicon().classes["bound participles"] or (parts_of_speech(word)[:1] == "v" and not _is_noun(word))


def _names_twice(words: list[str]) -> bool:
    heads = (
        word for word, after in zip(words, [*words[1:], ""], strict=True) if _is_noun(word) and not _is_noun(after)
    )
    named = Counter(map(singular, heads))  # "a tennis racket on a tennis court" names tennis nowhere
    return any(count > 1 for count in named.values())


@cache
def _is_noun(word: str) -> bool:
    lexis = lexicon()
    small = lexis.classes["function"] | lexis.classes["determiners"] | lexis.classes["numbers"] | _ARTICLES
    if lexis.is_quality(word) or word in small or not word[:1].isalpha():
        return False
    return word in lexis.things or singular(word) in lexis.things or parts_of_speech(word)[:1] == "n" or is_plural(word)
