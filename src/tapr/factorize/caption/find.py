"""Finds the part of a caption that a word of the edit refers to."""

from __future__ import annotations

from tapr.factorize.caption.parse import Link, Modifier, ParsedCaption, Phrase
from tapr.factorize.caption.words import canonical, group_of, is_general, same_family, words_of
from tapr.factorize.grammar.words import lexicon


def phrase_of(caption: ParsedCaption, words: list[str]) -> Phrase | None:
    """Return the noun phrase with this name: by all words, by its noun, by its family ("puppy" for "dog")."""
    if not words:
        return None
    wanted = [canonical(word) for word in words]
    phrases = [phrase for phrase in caption.phrases if not phrase.is_tone and not phrase.is_new]
    for phrase in phrases:
        if [canonical(word) for word in phrase.head] == wanted:
            return phrase
    for phrase in phrases:
        nouns = [canonical(word) for word in (phrase.noun, *phrase.measure.split()[:-1])]
        if wanted[-1] in nouns or (len(wanted) == 1 and wanted[0] in map(canonical, phrase.head)):
            return phrase
    general = canonical(words[-1])
    if general in words_of("generic") and general != "face":
        return None
    return next((phrase for phrase in phrases if _is_family(phrase, words[-1])), None)


def _is_family(phrase: Phrase, noun: str) -> bool:
    """Return whether the name may mean the thing: "bird" a duck; "duck" says more than bird, and takes its place."""
    if phrase.who or group_of(noun) in ("people", "roles", "places"):
        return False
    return is_general(noun) and same_family(phrase.noun, noun)


def of_group(caption: ParsedCaption, noun: str) -> Phrase | None:
    """Return the phrase whose place a new thing of its kind would take; the subject goes before others."""
    group = group_of(noun)
    if group in ("", "places"):
        return None
    if group in ("people", "roles"):
        return next((phrase for phrase in caption.phrases if phrase.who or phrase.doing), None)
    return next((phrase for phrase in caption.phrases if phrase.group == group), None)


def modifier_of(caption: ParsedCaption, text: str) -> tuple[Phrase, Modifier] | None:
    """Return the attribute with these words: "yellow" of "yellow tops", "print" of "printed kurtas"."""
    for phrase in caption.phrases:
        for modifier in phrase.modifiers:
            if text in (modifier.text, f"{modifier.text}s") or modifier.text in (f"{text}ed", f"{text}d"):
                return phrase, modifier
    return None


def verb_at(link: Link) -> int | None:
    """Return where the link's verb stands: "is running through" -> 1."""
    lexis = lexicon()
    for at, word in enumerate(link.words):
        if word in lexis.classes["be"] or word in lexis.classes["places"] or word in words_of("links"):
            continue
        is_verb = word.endswith("ing") or word in lexis.inflections or word.endswith("ed")
        if is_verb or word in lexis.classes["bound participles"]:
            return at
    return None


def action_after(caption: ParsedCaption, phrase: Phrase) -> tuple[int, int] | None:
    """Find (piece, word) of what the phrase does; a "with" or "in" phrase may stand between."""
    start = caption.pieces.index(phrase) + 1
    for index in range(start, len(caption.pieces)):
        piece = caption.pieces[index]
        if isinstance(piece, Link) and not piece.is_new and (at := verb_at(piece)) is not None:
            return (index, at) if piece.words[at] not in ("wearing", "holding", "filled") else None
    return None


def link_of(caption: ParsedCaption, verb: str) -> tuple[int, int] | None:
    for index, piece in enumerate(caption.pieces):
        if isinstance(piece, Link) and verb in piece.words:
            return index, piece.words.index(verb)
    return None


def place_in(caption: ParsedCaption) -> Phrase | None:
    """Return the phrase that says where: "in a field"."""
    places = lexicon().classes["places"] | {"down"}
    phrases = [
        phrase
        for before, phrase in zip(caption.pieces, caption.pieces[1:], strict=False)
        if isinstance(before, Link) and isinstance(phrase, Phrase) and not phrase.is_new and places & set(before.words)
    ]
    for groups in (("places",), ("furniture",), ("vehicles",)):
        if of_them := [phrase for phrase in phrases if phrase.group in groups]:
            return of_them[0]
    return None
