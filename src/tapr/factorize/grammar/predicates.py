"""Clauses that describe: "the train is red", "two dogs playing in the snow", "has longer sleeves"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapr.factorize.grammar.absolutes import PLAIN, Manner, absolute, settle
from tapr.factorize.grammar.phrases import Atom, Chunk, atoms_in, chunks, role_of
from tapr.factorize.grammar.reading import ReadingDraft
from tapr.factorize.grammar.words import lexicon

_RELATIVE = ("that", "which", "who")
_HAVING = ("include", "contain", "show", "have", "has", "feature", "wear", "showing")
_SUBJECTLESS = ("has", "have", "wears", "with", "in", "on", "at", "as")
_NOUN_PHRASE_ENDS = frozenset(("with", "as", "to", "wearing", "be", "more", "less", "look", "that", "like"))


def describe(draft: ReadingDraft, words: Sequence[str], manner: Manner = PLAIN) -> None:
    """Read a description into the draft, with its subject when it names one."""
    lexis = lexicon()
    verb = _verb_of_being(words)
    if verb is None:
        _take_all(draft, words, manner)
        return
    subject, predicate = words[:verb], list(words[verb:])
    draft.subject_is_implied |= not subject
    while predicate and (lexis.has("be", predicate[0]) or predicate[0] in lexis.classes["adverbs"] | {"to"}):
        predicate = predicate[1:]
    if predicate and predicate[0] in _HAVING:
        predicate[0] = "with"
    say_of(draft, subject, predicate)


def say_of(draft: ReadingDraft, subject: Sequence[str], predicate: Sequence[str]) -> None:
    """Join "train" and "red" to "red train", "dog" and "running" to "dog running"; keep both "crab" and "on sand"."""
    parts = chunks(subject)
    name, manner = _named(draft, parts)
    for part in parts[1:]:
        draft.hold(settle(absolute(part.words).add.split()))
    if not predicate:
        return
    read = atoms_in(predicate, replace(manner, picture=True) if name else manner)
    determiner = parts[0].determiner if parts else ""
    if name and read:
        first = read[0][0]
        is_noun = predicate[0] in ("a", "an", "the")  # "it is a truck" names the thing anew
        merged = _merged(name, first.text) if first and not first.lead and not is_noun else ""
        draft.unsaid = False
        if merged:
            read[0] = (Atom(merged, "", determiner or "a"), read[0][1])
        elif not (first and is_noun and not first.lead):
            draft.take(Atom(name, "", determiner))
    for atom, parsed in read:
        draft.read(atom, parsed)


def split_object(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split "the dog bigger" into ("the dog", "bigger"): where the noun phrase ends and what is said of it begins."""
    lexis = lexicon()
    words = list(words)
    is_long = len(words) > 2 and words[0] in ("this", "that", "her", "one")  # "her hair longer"
    if words and lexis.has("pronouns", words[0]) and not is_long:
        return words[:1], words[1:]
    seen_noun = False
    for index, word in enumerate(words):
        describes = lexis.is_comparative(word) or lexis.is_quality(word)
        ends = word in lexis.classes["places"] or word in _NOUN_PHRASE_ENDS or word in lexis.inflections
        if seen_noun and (ends or describes or lexis.has("states", word)):
            return words[:index], words[index:]
        is_small = any(lexis.has(group, word) for group in ("determiners", "numbers")) or word in ("of", "and", "both")
        seen_noun = seen_noun or not (describes or is_small)
    return words, []


def _named(draft: ReadingDraft, parts: Sequence[Chunk]) -> tuple[str, Manner]:
    """Name the subject and remember it in the draft; "" for "it", "the photo" and other words for the whole picture."""
    lexis = lexicon()
    manner = Manner(bare_verbs=True)
    name = absolute(parts[0].words).add if parts else ""
    if parts and any(lexis.has("picture words", word) for word in parts[0].words):
        return "", replace(manner, picture=True)
    if not name:
        return draft.subject if draft.unsaid else "", manner
    if not lexis.has("dimensions", name.rsplit(maxsplit=1)[-1]):
        draft.subject, draft.unsaid = name, True
        draft.subject_is_known = parts[0].determiner == "the"
    return name, manner


def _verb_of_being(words: Sequence[str]) -> int | None:
    """Return where the clause's own "is" stands; "a dog that is wet" has none."""
    lexis = lexicon()
    for index, word in enumerate(words):
        if lexis.has("be", word) and not (index and words[index - 1] in _RELATIVE):
            return index
        if word in ("with", "wearing", "has", "have") and index:
            return None
    return None


def _merged(name: str, predicate: str) -> str:
    """Join the subject and its quality or action to one phrase; "" when they do not join."""
    lexis = lexicon()
    role, words = role_of(predicate), predicate.split()
    faces = words[0].endswith("ing") and lexis.has("directions", words[-1])
    if role == "quality" or lexis.has("numbers", predicate) or lexis.kind(predicate) == "weather":
        return f"{predicate} {name}"
    return f"{name} {predicate}" if role == "action" or faces or predicate.endswith("ed") else ""


def _take_all(draft: ReadingDraft, words: Sequence[str], manner: Manner) -> None:
    read = atoms_in(words, manner)
    first = read[0][0] if read else None
    if first and not first.lead and not draft.subject and _can_be_subject(first):
        draft.subject = first.text
        draft.subject_is_known = first.determiner == "the"
    draft.subject_is_implied |= not draft.subject and bool(words) and words[0] in _SUBJECTLESS
    for atom, parsed in read:
        draft.read(atom, parsed)


def _can_be_subject(atom: Atom) -> bool:
    lexis = lexicon()
    return atom.role == "thing" and lexis.kind(atom.text.split()[-1]) != "style" and not lexis.has("numbers", atom.text)
