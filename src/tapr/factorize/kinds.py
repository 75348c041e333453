"""The kind of an edit, by its reading: query/edit_kinds.py says how much of the reference then stays."""

from __future__ import annotations

import re

from tapr.factorize.caption.words import canonical, group_of, is_general, kind_of, same_family, tone_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading
from tapr.factorize.grammar.words import lexicon
from tapr.factorize.parts_of_speech import sense

_PLACES = frozenset(("time", "weather", "season", "scene", "place"))
_WHO = frozenset(("man", "woman", "boy", "girl", "person"))
_MIN_DESCRIPTION_ATOMS = 3  # atoms of a whole description
_OF_A_PICTURE = re.compile(r"^(?:an? |the )?(?:photo|photograph|picture|image) of (?:an?|the|some|two|three|many)\b")


def kind_of_edit(  # noqa: PLR0911  a table read from top to bottom
    edit: str, reading: Reading, *, is_description: bool, about: str = ""
) -> str | None:
    """Return a name of EDIT_KINDS; None where the reading leaves it open.

    `is_description`: the edit could be a caption. `about`: what the picture is of.
    """
    atoms = reading.add
    if not atoms:
        return "removal" if reading.remove else None
    if any(tone_of(atom.text) or atom.lead == "as" or _is_who(atom) for atom in atoms):
        return "person"
    if all(map(_is_place, atoms)):
        return "place"
    if reading.swaps or reading.replaces_subject:
        return {"quality": "attribute", "action": "change"}.get(atoms[0].role, "replacement")
    if _takes_its_place(atoms[0], about):
        return "replacement"
    if is_description and (len(atoms) >= _MIN_DESCRIPTION_ATOMS or _OF_A_PICTURE.match(edit)):
        return "description"
    if any(atom.text.split()[0] in lexicon().classes["numbers"] for atom in atoms):
        return "count"
    if all(atom.role == "quality" or kind_of(atom.text) for atom in atoms):
        return "attribute"
    return "change"


def _is_who(atom: Atom) -> bool:
    """Return whether the atom is a person and nothing else: "a woman", "an astronaut"."""
    words = atom.text.split()
    return (
        atom.role == "thing"
        and atom.lead != "with"
        and len(words) == 1
        and (words[0] in _WHO or sense(words[0]) == "person")
    )


def _takes_its_place(atom: Atom, about: str) -> bool:
    """Return whether the atom replaces the thing: "a pear" of an apple, because one thing cannot be both."""
    noun, other = (phrase.split()[-1] if phrase else "" for phrase in (atom.text, about))
    if canonical(noun) == canonical(other) or (same_family(noun, other) and (is_general(noun) or is_general(other))):
        return False
    is_other = bool(group_of(noun)) and group_of(noun) == group_of(other)
    return is_other and not atom.lead and atom.determiner in ("a", "an") and atom.role == "thing"


def _is_place(atom: Atom) -> bool:
    noun = atom.text.partition(" of ")[0].split()[-1]
    if atom.role == "view" or lexicon().kind(atom.text) in _PLACES:
        return True
    return atom.lead in lexicon().classes["places"] and (group_of(noun) == "places" or sense(noun) == "place")
