"""What the edit's words alone say, before the picture is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from tapr.factorize.phrases import Absolute, Atom
from tapr.factorize.words import lexicon


@dataclass(frozen=True)
class Reading:
    add: tuple[Atom, ...] = ()
    remove: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()  # named as staying: "the same dog"
    changed: frozenset[str] = frozenset()  # kinds that differ in a way not said: "a different colour"
    subject: str = ""  # what the edit calls the thing it speaks of
    replaces_subject: bool = False  # "turn it into a cat"
    unknown: tuple[str, ...] = ()  # words of no list, taken as they stand
    left_out: tuple[str, ...] = ()  # words that reached no factor


@dataclass
class Draft:
    """A reading in the making. The first word wins: what is removed is not added again, nor the other way round."""

    add: dict[str, Atom] = field(default_factory=dict)
    remove: dict[str, None] = field(default_factory=dict)
    keep: dict[str, None] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    subject: str = ""  # the subject in words, said or still unsaid
    unsaid: bool = False  # the subject stands in no atom yet: "the monkey is no longer eating and ..."
    replaces_subject: bool = False
    removing: str = ""  # the last clause removed: its words "no" or "remove" reach over the next "and"

    def take(self, atom: Atom | None) -> None:
        if atom and atom.text and atom.text not in self.remove:
            self.add.setdefault(atom.text, atom)

    def drop(self, phrase: str) -> None:
        if phrase and phrase not in self.add:
            self.remove[phrase] = None
            absence = lexicon().meanings["absences"].get(phrase)
            self.take(Atom(absence) if absence else None)

    def hold(self, phrase: str) -> None:
        if phrase and not lexicon().has("dimensions", phrase.split()[-1]):
            self.keep[phrase] = None

    def read(self, atom: Atom | None, said: Absolute) -> None:
        """Take in all that one chunk says."""
        self.take(atom)
        self.drop(said.remove)
        self.hold(said.keep)
        if said.changed:
            self.changed.add(said.changed)
