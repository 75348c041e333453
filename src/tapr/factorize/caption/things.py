"""Things and places: described again, replaced, or added beside the others."""

from __future__ import annotations

from dataclasses import replace

from tapr.factorize.caption.doings import Doings
from tapr.factorize.caption.find import of_group, phrase_of, place_in, verb_at
from tapr.factorize.caption.parse import Link, Modifier, Phrase, split_modifiers
from tapr.factorize.caption.words import canonical, group_of, words_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import is_plural, lexicon

_GENDERS = {"male": "man", "female": "woman"}
_RESTING = frozenset(("sitting", "standing", "laying", "lying", "hanging", "placed", "displayed", "resting"))


class Things(Doings):
    """Finds the place of a thing that the edit names."""

    def _thing(self, atom: Atom) -> None:
        name, action = _split_action(atom.text)
        measure, _, rest = name.rpartition(" of ")
        modifiers, head = split_modifiers((rest or name).split())
        match = phrase_of(self._caption, head)
        other = match is not None and measure and match.measure != f"{measure} of"
        if match is not None and other and (match.measure or atom.lead == "with"):
            match = None  # "with a glass of beer" beside a beer
        same_measure = next(
            (phrase for phrase in self._caption.phrases if measure and phrase.measure == f"{measure} of"), None
        )
        if atom.lead.endswith("-by"):
            self._by(atom)
            return
        place = atom.lead in lexicon().classes["places"] and atom.lead != "in"
        if match is not None and place and atom.determiner == "the" and self._reading.add[0].text != atom.text:
            self._done.stays(match.named())  # "with pizza on the table": where the new thing is
        elif match is not None and not place:
            self._describe(match, modifiers, action, atom)
        elif same_measure is not None:
            self._substitute(same_measure, atom)
        elif atom.lead in lexicon().classes["places"]:
            self._place(atom)
        elif not atom.lead and atom.determiner != "the" and (old := of_group(self._caption, head[-1])) is not None:
            self._replace(old, replace(atom, text=name), "")
            if action:
                self._act(old, action)
        elif not atom.lead and atom.determiner in ("a", "an") and self._caption.subject and not self._sure:
            self._caption.pieces = [Phrase(head, atom.determiner, "", modifiers, True)]  # the edit alone is sure
            self._done.came(atom.text)
        elif not atom.lead and atom.determiner in ("a", "an") and self._is_one_thing() and self._caption.subject:
            self._substitute(self._caption.subject, atom)
        else:
            self._append(atom)

    def _is_one_thing(self) -> bool:
        """Return whether the caption is an emoji's or one name: another thing then replaces the whole."""
        return self._caption.is_emoji or len(self._caption.phrases) == 1

    def _describe(self, phrase: Phrase, modifiers: list[Modifier], action: str, atom: Atom) -> None:
        """Change the attributes, number and action of a thing in the caption that the edit speaks of."""
        if self._is_vessel(phrase, _split_action(atom.text)[0].split()[-1]):
            self._describe_vessel(phrase, modifiers)
            return
        others = [modifier for modifier in modifiers if modifier.kind != "number"]
        if others and not (phrase.who and others[0].text in _GENDERS):
            self._done.came(
                " ".join([*(modifier.text for modifier in others), *_split_action(atom.text)[0].split()[-1:]])
            )
        for modifier in modifiers:
            if modifier.kind == "number":
                self._count(phrase, modifier.text)
            elif modifier.text in _GENDERS and phrase.who:
                self._who(phrase, _GENDERS[modifier.text])
            elif lexicon().kind(modifier.text) == "pose" and modifier.text in lexicon().inflections:
                self._act(phrase, modifier.text, atom_text=atom.text)  # "a sitting dog"
            else:
                self._quality(phrase, modifier.text, came=False)
        if action:
            self._act(phrase, action, atom_text=atom.text)
        if not phrase.is_new and phrase.noun != atom.text.split()[-1] and not modifiers and not action:
            self._substitute(phrase, atom)

    def _is_vessel(self, phrase: Phrase, noun: str) -> bool:
        """Return whether the noun names the bowl in "a bowl of soup", and not the soup."""
        return bool(phrase.vessel) and canonical(noun) == canonical(phrase.vessel) != canonical(phrase.noun)

    def _describe_vessel(self, phrase: Phrase, modifiers: list[Modifier]) -> None:
        """Change the vessel: "in a blue bowl" of "a bowl of soup"."""
        old = [Modifier(word) for word in phrase.measure.split()[:-2]]
        kinds = {modifier.kind for modifier in modifiers}
        gone = [modifier.text for modifier in old if modifier.kind and modifier.kind in kinds]
        kept = [modifier.text for modifier in old if modifier.text not in gone]
        new = " ".join([*(modifier.text for modifier in modifiers), phrase.vessel])
        self._done.came(new)
        if gone:
            self._done.went(" ".join([*gone, phrase.vessel]))
        self._done.step("insert", " ".join(gone), new)
        phrase.measure = " ".join([*kept, new, "of"])

    def _replace(self, phrase: Phrase, atom: Atom, old: str) -> None:
        """Put a new thing in the place of an old one; of a person only who or what it is changes."""
        if old and self._is_vessel(phrase, old.rsplit(maxsplit=1)[-1]):
            self._done.came(atom.text)
            self._done.went(phrase.vessel)
            self._done.step("exchange", phrase.vessel, atom.text)
            phrase.measure = f"{atom.text} of"
            phrase.determiner = atom.determiner or phrase.determiner
            return
        head = split_modifiers(atom.text.split())[1]
        group = group_of(head[-1])
        is_role = phrase.doing and canonical(old.rsplit(maxsplit=1)[-1] if old else "") != canonical(phrase.who)
        if (
            group == "people"
            and (phrase.who or phrase.doing)
            and len(head) == 1
            and not split_modifiers(atom.text.split())[0]
        ):
            self._who(phrase, atom.text)
            return
        if (group == "roles" or (is_role and old)) and (phrase.who or phrase.doing) and group != "people":
            self._role(atom)
            return
        inside = [canonical(word) for word in phrase.head[:-1]]
        if old and len(old.split()) == 1 and canonical(old) in inside and head[-1] != phrase.noun:
            at = inside.index(canonical(old))
            self._done.came(atom.text)
            self._done.went(phrase.head[at])
            self._done.step("exchange", phrase.head[at], atom.text)
            rest = [*phrase.head[:at], *phrase.head[at + 1 :]]
            self._done.stays(" ".join(rest))
            phrase.head, phrase.is_new = [*phrase.head[:at], *atom.text.split(), *phrase.head[at + 1 :]], True
            return
        self._substitute(phrase, atom)

    def _substitute(self, phrase: Phrase, atom: Atom) -> None:
        measure, _, rest = atom.text.rpartition(" of ")
        modifiers, head = split_modifiers((rest or atom.text).split())
        shared = {modifier.text for modifier in phrase.modifiers} & {modifier.text for modifier in modifiers}
        fresh = [modifier for modifier in modifiers if modifier.text not in shared]
        old = " ".join(phrase.head)
        is_subject = self._caption.subject is phrase
        if measure and phrase.measure:
            old = f"{phrase.measure} {old}"
        if fresh:
            kinds = {modifier.kind for modifier in fresh} - {""}
            gone = [
                modifier.text
                for modifier in phrase.modifiers
                if modifier.text not in shared and modifier.kind in kinds - {"number"}
            ]
            old = " ".join([*gone, old])
            phrase.modifiers = [
                modifier for modifier in phrase.modifiers if modifier.text in shared or modifier.kind not in kinds
            ]
        new = " ".join([*(f"{measure} of".split() if measure else []), *(modifier.text for modifier in fresh), *head])
        self._done.came(new)
        self._done.went(old)
        self._done.step("exchange subject" if is_subject else "exchange", old, new)
        phrase.modifiers += [Modifier(modifier.text, True) for modifier in fresh if modifier.kind != "number"]
        if measure:
            phrase.measure = f"{measure} of"
        elif phrase.measure and group_of(head[-1]) != phrase.group:
            phrase.measure = ""
        if not phrase.measure:
            phrase.determiner = atom.determiner or ("" if is_plural(head[-1]) else phrase.determiner)
        phrase.head, phrase.is_new = head, True
        for modifier in fresh:
            if modifier.kind == "number" and modifier.text != "one":
                phrase.counted(modifier.text)

    def _place(self, atom: Atom) -> None:
        """Exchange the place: "on a beach" for "in a field"."""
        head = split_modifiers(atom.text.partition(" of ")[0].split())[1]
        lead = atom.lead.split("-")
        if atom.lead == "in" and group_of(head[-1]) in ("clothes", ""):
            worn = next(
                (phrase for phrase in self._caption.phrases if phrase.group == "clothes" and not phrase.is_new), None
            )
            if worn is not None and group_of(head[-1]) == "clothes" and worn is not self._caption.subject:
                self._substitute(worn, atom)
                return
        if atom.lead == "in" and self._caption.is_emoji and self._posture(atom):
            return
        old = place_in(self._caption)
        is_place = (
            group_of(head[-1]) in ("places", "furniture", "nature", "buildings") or lexicon().kind(atom.text) == "scene"
        )
        if old is None or not is_place:
            self._append(atom)
            return
        self._done.came(atom.text)
        self._done.went(old.named())
        self._done.step("exchange place", old.named(), atom.text)
        link = self._caption.pieces[self._caption.pieces.index(old) - 1]
        if isinstance(link, Link):
            places = lexicon().classes["places"] | {"down", "top", "front", "of", "side", "the", "middle", "next", "to"}
            while link.words and link.words[-1] in places:
                link.words.pop()
            link.words += lead
        modifiers, head = split_modifiers(atom.text.split())
        fresh = [Modifier(modifier.text, True) for modifier in modifiers]
        old.determiner, old.measure, old.modifiers, old.head, old.is_new = atom.determiner, "", fresh, head, True

    def _by(self, atom: Atom) -> None:
        """Read "worn by a woman": where the thing lay before is no more, and whoever has it may change."""
        person = of_group(self._caption, atom.text.split()[-1])
        if person is not None and self._caption.subject is person:
            self._replace(person, atom, "")
            return
        for index, piece in enumerate(self._caption.pieces):
            if isinstance(piece, Link) and (at := verb_at(piece)) is not None and piece.words[at] in _RESTING:
                place = self._caption.pieces[index + 1 : index + 2]
                if place and isinstance(place[0], Phrase):
                    self._done.went(place[0].named())
                    self._done.step("delete", place[0].named(), "")
                del self._caption.pieces[index : index + 2]
                break
        self._append(atom)


def _split_action(text: str) -> tuple[str, str]:
    """Split "cat sleeping" into ("cat", "sleeping")."""
    words = text.split()
    for at, word in enumerate(words[1:], start=1):
        if (
            word.endswith("ing")
            and word not in words_of("not verbs")
            and (word in lexicon().inflections or at == len(words) - 1)
        ):
            return " ".join(words[:at]), " ".join(words[at:])
    return text, ""
