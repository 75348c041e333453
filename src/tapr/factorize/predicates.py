"""Clauses that describe: "the train is red", "two dogs playing in the snow", "has longer sleeves"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapr.factorize.phrases import PLAIN, Atom, Manner, absolute, atoms_in, chunks, role_of, settle
from tapr.factorize.reading import Draft
from tapr.factorize.words import lexicon

_RELATIVE = ("that", "which", "who")


def describe(draft: Draft, words: Sequence[str], manner: Manner = PLAIN) -> None:
    """Read a description into the draft, with its subject when it names one."""
    lexis = lexicon()
    words = list(words)
    verb = _verb_of_being(words)
    if verb is None:
        _take_all(draft, words, manner)
        return
    subject, predicate = words[:verb], words[verb:]
    while predicate and (lexis.has("be", predicate[0]) or predicate[0] in lexis.classes["adverbs"] | {"to"}):
        predicate = predicate[1:]
    if predicate and predicate[0] in ("include", "contain", "show", "have", "has", "feature", "wear", "showing"):
        predicate = ["with", *predicate[1:]]
    say_of(draft, subject, predicate)


def say_of(draft: Draft, subject: Sequence[str], predicate: Sequence[str]) -> None:
    """ "train" and "red" -> "red train"; "dog" and "running" -> "dog running"; "crab" and "on sand" -> both."""
    lexis = lexicon()
    parts = chunks(list(subject))
    name = absolute(parts[0].words).add if parts else ""
    if parts and any(lexis.has("picture words", word) for word in parts[0].words):
        name, manner = "", Manner(picture=True, bare_verbs=True)
    else:
        manner = Manner(bare_verbs=True)
    if parts and not name and draft.unsaid:
        name = draft.subject
    if not parts and draft.unsaid:
        name = draft.subject
    for part in parts[1:]:
        draft.hold(settle(absolute(part.words).add.split()))
    if name and parts:
        draft.subject, draft.unsaid = name, True
    if not predicate:
        return
    read = atoms_in(predicate, manner if not name else replace(manner, picture=True))
    if not name or not read:
        _take_read(draft, read, manner, predicate)
        return
    (first, said), rest = read[0], read[1:]
    determiner = parts[0].determiner if parts else ""
    is_noun = predicate[0] in ("a", "an", "the")
    if first and not first.lead and not is_noun and (merged := _merged(name, first.text)):
        draft.read(Atom(merged, "", determiner or "a"), said)
        draft.unsaid = False
    else:
        if not (is_noun and first and not first.lead):
            draft.take(Atom(name, "", determiner))
        draft.unsaid = False
        draft.read(first, said)
    for atom, more in rest:
        draft.read(atom, more)


def split_object(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """ "the dog bigger" -> ("the dog", "bigger"): where the noun phrase ends and what is said of it begins."""
    lexis = lexicon()
    words = list(words)
    if words and lexis.has("pronouns", words[0]) and not (words[0] in ("this", "that", "her", "one") and len(words) > 2):
        return words[:1], words[1:]
    seen_noun = False
    for index, word in enumerate(words):
        opens = word in lexis.classes["places"] or word in ("with", "as", "to", "wearing", "be", "more", "less", "look", "that", "like")
        verbal = word in lexis.inflections and (word.endswith("ing") or seen_noun)
        after_noun = seen_noun and (lexis.is_comparative(word) or lexis.is_quality(word) or lexis.has("states", word))
        if index and (seen_noun and (opens or verbal) or after_noun):
            return words[:index], words[index:]
        seen_noun = seen_noun or not (
            lexis.has("determiners", word) or lexis.is_quality(word) or lexis.is_comparative(word) or lexis.has("numbers", word)
            or word in ("of", "and", "both")
        )  # fmt: skip
    return words, []


def _verb_of_being(words: Sequence[str]) -> int | None:
    """Where the clause's own "is" stands; "a dog that is wet" has none."""
    lexis = lexicon()
    for index, word in enumerate(words):
        if lexis.has("be", word) and not (index and words[index - 1] in _RELATIVE):
            return index
        if word in ("with", "wearing", "has", "have") and index:
            return None
    return None


def _merged(name: str, quality: str) -> str:
    """The subject and its quality or action as one phrase, or "" when they do not join."""
    role = role_of(quality)
    lexis = lexicon()
    if role == "action" or lexis.has("directions", quality.split()[-1]) and quality.split()[0].endswith("ing"):
        return f"{name} {quality}"
    if role == "quality" or quality in lexis.classes["numbers"] or role == "view" and lexis.kind(quality) == "weather":
        return f"{quality} {name}"
    if quality.endswith("ed"):
        return f"{name} {quality}"
    return ""


def _take_all(draft: Draft, words: Sequence[str], manner: Manner) -> None:
    read = atoms_in(words, manner)
    first = chunks(words)[0] if read else None
    if first and first.lead == "" and read[0][0] and read[0][0].role == "thing" and not draft.subject:
        draft.subject = read[0][0].text
    _take_read(draft, read, manner, words)


def _take_read(draft: Draft, read: Sequence[tuple[Atom | None, object]], manner: Manner, words: Sequence[str]) -> None:
    for atom, said in read:
        draft.read(atom, said)  # type: ignore[arg-type]
