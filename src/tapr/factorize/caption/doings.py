"""Actions, roles and postures of people and animals."""

from __future__ import annotations

from tapr.factorize.caption.attributes import Attributes
from tapr.factorize.caption.find import action_after, verb_at
from tapr.factorize.caption.parse import Link, Modifier, Phrase, split_modifiers
from tapr.factorize.caption.words import group_of, words_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import lexicon

_WAYS = {"down": "on", "along": "on", "across": "on", "through": "in"}


class Doings(Attributes):
    """Exchanges actions and roles."""

    def _is_doing(self, atom: Atom) -> bool:
        """Recognise "shrugging", "feeding baby"; but "a diving mask" is a thing."""
        first = atom.text.split()[0]
        is_verb = first.endswith("ing") and first not in words_of("not verbs")
        return is_verb and not atom.determiner and len(atom.text.split()) <= 3

    def _act(self, phrase: Phrase | None, text: str, *, atom_text: str = "") -> None:
        """Put another action in the place of the one that is seen."""
        self._done.came(atom_text or text)
        if phrase is None:
            self._caption.pieces.append(Link([text], True))
            return
        emotion = phrase.of_kind("emotion") or phrase.of_kind("pose")
        if emotion is not None:
            self._exchange(phrase, emotion, text, came=False)
        elif self._says_how(phrase, text):
            self._done.add.pop(atom_text or text, None)
            look = next(
                (modifier for modifier in phrase.modifiers if modifier.text.endswith("ing") and not modifier.is_new),
                None,
            )
            if look is not None:
                self._exchange(phrase, look, text)
            else:
                self._quality(phrase, text)
        elif phrase.doing and self._caption.prefix and phrase.who:
            self._done.went(phrase.doing)
            self._done.step("exchange role", phrase.doing, text)
            self._done.stays(phrase.who)
            phrase.head, phrase.is_new = [phrase.who], True
            self._insert_after(phrase, [Link([text], True)])
        elif (place := action_after(self._caption, phrase)) is not None:
            self._act_instead(*place, text)
        else:
            self._done.step("insert", "", text, phrase.named())
            self._insert_after(phrase, [Link([text], True)])

    def _says_how(self, phrase: Phrase, text: str) -> bool:
        """Return whether the word goes before its noun: a crying face, a smiling man (he may stand), running shoes."""
        if len(text.split()) > 1:
            return False
        is_look = lexicon().kind(text) == "emotion" and not phrase.doing
        return is_look or phrase.noun == "face" or group_of(phrase.noun) == "clothes"

    def _act_instead(self, index: int, at: int, text: str) -> None:
        """Replace the action that this word of this piece says."""
        link = self._caption.pieces[index]
        assert isinstance(link, Link)
        ends = [word for word in link.words[at + 1 :] if word in lexicon().classes["places"] | {"down"}]
        goes = link.words[at : at + 1]
        after = index + 1
        if not ends:
            goes += link.words[at + 1 :]
            while after < len(self._caption.pieces) and isinstance(self._caption.pieces[after], Phrase):
                thing = self._caption.pieces[after]
                assert isinstance(thing, Phrase)
                if thing.is_tone:
                    break
                goes.append(thing.named())
                del self._caption.pieces[after]
            link.words[at:] = [text]
        elif self._names_place():
            link.words[at:] = [text]
            place = self._caption.pieces[after] if after < len(self._caption.pieces) else None
            if isinstance(place, Phrase):
                self._done.went(place.named())
                del self._caption.pieces[after]
        else:
            link.words[at] = text
            if link.words[at + 1] in _WAYS and (not text.endswith("ing") or lexicon().kind(text) == "pose"):
                link.words[at + 1] = _WAYS[link.words[at + 1]]  # parked on a street that it was driving down
        self._done.went(" ".join(goes))
        self._done.step("exchange action", " ".join(goes), text)

    def _names_place(self) -> bool:
        return any(atom.lead in lexicon().classes["places"] for atom in self._reading.add)

    def _role(self, atom: Atom) -> None:
        """Exchange what the person is: "as an astronaut"."""
        person = next((phrase for phrase in self._caption.phrases if phrase.who or phrase.doing), None)
        if person is None:
            self._append(atom)
            return
        old, who = person.doing, person.who
        self._done.came(atom.text)
        self._done.step("exchange role", old, atom.text)
        if old:
            self._done.went(old)
        elif self._caption.prefix:
            self._drop_action(person)
        self._done.stays(who)
        person.head, person.is_new = [*filter(None, [who]), *atom.text.split()], True

    def _drop_action(self, person: Phrase) -> None:
        place = action_after(self._caption, person)
        if place is None:
            return
        self._drop_doing(place[0])

    def _drop_doing(self, at: int) -> None:
        """Take out the link at this place and the things that directly follow it."""
        link = self._caption.pieces.pop(at)
        assert isinstance(link, Link)
        goes = [*link.words]
        while at < len(self._caption.pieces):
            thing = self._caption.pieces[at]
            if not isinstance(thing, Phrase) or thing.is_tone:
                break
            goes.append(thing.named())
            del self._caption.pieces[at]
        self._done.went(" ".join(goes).removeprefix("in ").removeprefix("with "))

    def _posture(self, atom: Atom) -> bool:
        """Exchange the posture: a person "in a wheelchair" is no longer "in lotus position", nor running."""
        subject = self._caption.subject
        if subject is None or not subject.who:
            return False
        at = self._caption.pieces.index(subject) + 1
        link = self._caption.pieces[at] if at < len(self._caption.pieces) else None
        if not isinstance(link, Link) or not (link.words == ["in"] or verb_at(link) is not None):
            return False
        self._drop_doing(at)
        self._done.came(atom.text)
        self._done.step("exchange action", "", f"in {atom.text}")
        modifiers, head = split_modifiers(atom.text.split())
        new = Phrase(head, atom.determiner, "", [Modifier(modifier.text, True) for modifier in modifiers], True)
        self._insert_after(subject, [Link(["in"], True), new])
        return True
