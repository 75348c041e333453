"""Whether a sentence could be a caption: what fails is neither shown nor searched with."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from tapr.factorize.caption.words import is_modifier, words_of
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
    r"what|which|why|does|ones?|fewer|something|someone)\b"
)
_SMALL = ("function", "determiners", "numbers", "be", "have", "places", "pronouns", "adverbs")
_WORD = re.compile(r"[\w'-]+|[,.;:?!]")


def is_grammatical(sentence: str) -> bool:
    """Return whether phrases begin after prepositions and articles, no clause has two verbs, no thing comes twice."""
    words = [word for word in _WORD.findall(sentence.casefold()) if word[0].isalnum() or word == ","]
    if not words or words[-1] == "," or words[-1].endswith("'s"):
        return False
    if words[-1] in _OPEN and words[-2:] != ["from", "behind"]:
        return False
    if sum(word in _BE for word in words) > 1:
        return False
    return all(map(_follows, words, words[1:])) and not _names_twice(words) and _agrees(words)


def is_caption(sentence: str) -> bool:
    """Return whether it is grammatical and says what a picture shows, not how it differs: it begins with the thing."""
    words = re.findall(r"[a-z'-]+", sentence.casefold())
    if not words or _NO_CAPTION.search(sentence.casefold()) or any(map(lexicon().is_comparative, words)):
        return False
    joins = [word for word in _WORD.findall(sentence.casefold()) if word in ("and", ",")]
    if len(joins) == 1 and lexicon().is_quality(words[-1]) and not _BE & set(words):
        return False  # "long sleeves and striped", "tartan, red": a list of what is wanted
    return names_its_subject(sentence) and is_grammatical(sentence)


def names_its_subject(sentence: str) -> bool:
    """Return whether it begins with the thing, not with where it is or what it does ("In rain.", "Three.")."""
    words = re.findall(r"[a-z'-]+", sentence.casefold())
    if not words or words[0] in _LEADS | lexicon().classes["places"] | {"as", "seen", "up", "down"}:
        return False
    if words[0].endswith("ing") and words[0] not in words_of("not verbs"):
        return len(words) > 1 and _is_noun(words[1]) and lexicon().kind(words[0]) == "emotion"
    opening = words[: next((at for at, word in enumerate(words) if at and word in _LEADS - {"of"}), len(words))]
    return any(map(_is_noun, opening)) and not _is_participle(words[0])


def _follows(word: str, after: str) -> bool:
    """Return whether the one may stand before the other."""
    is_adverb = parts_of_speech(after)[:1] == "r" and not lexicon().is_quality(after)
    if word in _ARTICLES:
        return after not in _OPEN - {"holding"} | _BE | {","} and (not is_adverb or lexicon().has("adverbs", after))
    if word in _LEADS:
        return after not in _BE | {","} and (word == "from" or (after not in _LEADS and not is_adverb))
    if after in _BE:
        return not word.endswith("ing") and word != "and"
    if word in _BE:
        return _verb(after) != after or lexicon().is_quality(after)  # but "the dog is stand"
    if after.endswith("ing") and _verb(after) and word != after and _verb(word) and not lexicon().is_quality(word):
        return not (word.endswith("ing") or _verb(word) == _verb(after))  # "a dog playing lying", "runs running"
    return word != "and" or after not in ("and", ",")


def _agrees(words: list[str]) -> bool:
    """Accept "a dress", but not "a dresses"; "a ladies' dress" and "a sports bag" are right."""
    for at, word in enumerate(words):
        if word not in ("a", "an"):
            continue
        phrase = words[at + 1 :]
        end = next((i for i, other in enumerate(phrase) if not (_is_noun(other) or is_modifier(other))), len(phrase))
        head = phrase[end - 1] if end else ""
        if is_plural(head) and head not in lexicon().classes["numbers"] and phrase[end : end + 1] != ["of"]:
            return False
    return True


def _verb(word: str) -> str:
    return lexicon().inflections.get(word, "")


def _is_participle(word: str) -> bool:
    """Recognise "held in a hand", "worn by a man"."""
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
    small = frozenset().union(*(lexis.classes[name] for name in _SMALL))
    if lexis.is_quality(word) or word in small or not word[:1].isalpha():
        return False
    if word.endswith("ing") and word in lexis.inflections:
        return False
    if word in lexis.things or singular(word) in lexis.things or is_plural(word):
        return True
    return parts_of_speech(word)[:1] in ("n", "") and not word.endswith(("ed", "ing", "ly"))  # new words name things
