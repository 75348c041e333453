"""What the words of the edit say, without the picture."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from tapr.factorize.grammar.absolutes import Absolute
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import lexicon
from tapr.factorize.parts_of_speech import parts_of_speech


@dataclass(frozen=True)
class Reading:
    add: tuple[Atom, ...] = ()
    remove: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()  # named as staying: "the same dog"
    changed: frozenset[str] = frozenset()  # kinds that differ in a way not said: "a different colour"
    subject: str = ""  # what the edit calls the thing it speaks of
    subject_is_known: bool = False  # said with "the": a part of the reference rather than something new
    replaces_subject: bool = False  # "turn it into a cat"
    swaps: tuple[tuple[str, str], ...] = ()  # (new, old): "a cat instead of a dog"; old is "" for "a cat instead"
    unknown: tuple[str, ...] = ()  # words of no list, taken as they stand


def tidy(phrase: str) -> str:
    """Return an atom's final form: nothing relative or negated, no stray words at its ends; "" if none is left."""
    classes = lexicon().classes
    phrase = re.sub(r"\b(?:next-to|in-front-of|on-top-of|both-sides|left-side|right-side)\b", _spaced, phrase)
    words = [word for word in phrase.split() if word.casefold() not in classes["residue"]]
    while words and words[0] in classes["edges"]:
        words = words[1:]
    while words and words[-1] in classes["edges"]:
        words = words[:-1]
    return " ".join(words)


def _is_adverb(phrase: str) -> bool:
    """Return whether the phrase is an adverb: "up" alone names nothing that can be seen."""
    return parts_of_speech(phrase)[:1] == "r" and not lexicon().is_quality(phrase) and lexicon().kind(phrase) is None


def _spaced(match: re.Match[str]) -> str:
    return match.group().replace("-", " ")


@dataclass
class ReadingDraft:
    """A reading in the making. The first word wins: what is removed is not added again, nor the other way round."""

    add: dict[str, Atom] = field(default_factory=dict)
    remove: dict[str, None] = field(default_factory=dict)
    keep: dict[str, None] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    subject: str = ""  # the subject in words, said or still unsaid
    unsaid: bool = False  # the subject stands in no atom yet: "the monkey is no longer eating and ..."
    subject_is_known: bool = False
    subject_is_implied: bool = False  # a clause speaks of the picture's own subject: "is seen from behind"
    replaces_subject: bool = False
    swaps: dict[str, str] = field(default_factory=dict)  # what is added -> what it stands in place of
    removing: str = ""  # the last clause removed: its words "no" or "remove" reach over the next "and"

    def take(self, atom: Atom | None) -> None:
        text = tidy(atom.text) if atom else ""
        if atom and text and text not in self.remove and not _is_adverb(text):
            self.add.setdefault(text, replace(atom, text=text))

    def drop(self, phrase: str) -> None:
        phrase = tidy(phrase)
        if phrase and phrase not in self.add:
            self.remove[phrase] = None
            absence = lexicon().meanings["absences"].get(phrase)
            self.take(Atom(absence) if absence else None)

    def hold(self, phrase: str) -> None:
        phrase = tidy(phrase)
        if phrase and (phrase == "animal" or not lexicon().has("dimensions", phrase.rsplit(maxsplit=1)[-1])):
            self.keep[phrase] = None

    def read(self, atom: Atom | None, parsed: Absolute) -> None:
        """Take in all that one chunk says."""
        self.take(atom)
        self.drop(parsed.remove)
        self.hold(parsed.keep)
        if parsed.changed:
            self.changed.add(parsed.changed)
