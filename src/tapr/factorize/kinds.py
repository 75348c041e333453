"""Which kind of edit it is, told by its reading: query/edit_kinds.py says how much of the reference then stays."""

from __future__ import annotations

from tapr.factorize.caption.words import group_of, kind_of, tone_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading
from tapr.factorize.grammar.words import lexicon
from tapr.factorize.parts_of_speech import sense

_PLACES = frozenset(("time", "weather", "season", "scene", "place"))
_WHO = frozenset(("man", "woman", "boy", "girl", "person"))
_LONG = 3  # atoms of a whole description


def kind_of_edit(  # noqa: PLR0911  a table read from top to bottom
    reading: Reading, *, is_description: bool
) -> str | None:
    """A name of EDIT_KINDS; None where the reading leaves it open. `is_description`: the edit could be a caption."""
    atoms = reading.add
    if not atoms:
        return "removal" if reading.remove else None
    if any(tone_of(atom.text) or atom.lead == "as" or _is_who(atom) for atom in atoms):
        return "person"
    if all(map(_is_place, atoms)):
        return "place"
    if reading.swaps or reading.replaces_subject:
        return "attribute" if atoms[0].role == "quality" else "replacement"
    if is_description and len(atoms) >= _LONG:
        return "description"
    if any(atom.text.split()[0] in lexicon().classes["numbers"] for atom in atoms):
        return "count"
    if all(atom.role == "quality" or kind_of(atom.text) for atom in atoms):
        return "attribute"
    return "change"


def _is_who(atom: Atom) -> bool:
    """ "a woman", "an astronaut": a person, and nothing else said."""
    words = atom.text.split()
    return atom.role == "thing" and len(words) == 1 and (words[0] in _WHO or sense(words[0]) == "person")


def _is_place(atom: Atom) -> bool:
    noun = atom.text.split()[-1]
    if atom.role == "view" or lexicon().kind(atom.text) in _PLACES:
        return True
    return atom.lead in lexicon().classes["places"] and (group_of(noun) == "places" or sense(noun) == "place")
