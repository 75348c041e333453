"""Apply what an edit says to a caption: exchange, insert, delete, append, each in the place the words point at."""

from __future__ import annotations

from tapr.factorize.caption.edited import Edited
from tapr.factorize.caption.find import link_of, modifier_of, of_group, phrase_of, place_in
from tapr.factorize.caption.parse import Link, Phrase, split_modifiers
from tapr.factorize.caption.things import Things
from tapr.factorize.caption.words import canonical, group_of, kind_of, same_family, tone_of, words_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import is_plural, lexicon

_NOUNS_OF_QUALITY = frozenset(("colour", "colours", "fit", "length", "sleeves", "dots", "print"))
_VIEWS = frozenset(("viewpoint", "tint", "time", "weather", "season", "place"))
_SHADES = {"dark colour": "dark", "light colour": "light", "bright colour": "bright", "pale colour": "pale"}
_NOWHERE = frozenset(("air", "day", "background", "it"))


_WHO = frozenset(("man", "woman", "boy", "girl", "person"))


class Editor(Things):
    """Applies what the edit keeps, adds and removes, in this order."""

    def run(self) -> Edited:
        done, reading = self._done, self._reading
        for phrase in reading.keep:
            self._keep(phrase)
        self._let_go()
        swaps = dict(reading.swaps)
        gone = set()
        for atom in reading.add:
            if atom.text in swaps:
                gone.add(swaps[atom.text])
                self._swap(atom, swaps[atom.text])
            else:
                self._add(atom)
        for phrase in reading.remove:
            if phrase not in gone and phrase not in done.remove:
                self._delete(phrase)
        for kind in sorted(reading.changed):
            self._forget(kind)
        for left in self._caption.phrases:
            if self._sure and not left.is_new and left.noun not in _NOWHERE:
                done.stays(left.named(new=False))
        preserve = [atom for atom in done.preserve if atom not in done.add and atom not in done.remove]
        remove = [atom for atom in done.remove if atom not in done.add]
        return Edited(
            target=self._caption.as_text(),
            add=tuple(done.add),
            preserve=tuple(preserve),
            remove=tuple(remove),
            steps=tuple(done.steps),
            notes=tuple(done.notes),
        )

    def _keep(self, phrase: str) -> None:
        """Name the thing by the edit's own word: "the same blouse" of "women's shirts"."""
        words = phrase.split()
        noun = canonical(words[-1])
        match = phrase_of(self._caption, words)
        if noun in ("face", "person") and not self._is_of(noun):
            self._note(self._caption.as_text(), phrase)
            self._caption.pieces = [Phrase(words)]
            return
        if match is not None and not self._sure and not match.who and noun == canonical(match.noun):
            self._caption.pieces = [match]  # what else the caption says may well be wrong
            match.modifiers = []
        if noun in words_of("generic"):
            return
        if match is None or (match.noun != words[-1] and canonical(match.noun) != canonical(words[-1])):
            subject = match or of_group(self._caption, words[-1])
            if subject is not None and not subject.doing:
                self._note(subject.named(), phrase)
                plural = is_plural(subject.noun) and not is_plural(words[-1])
                subject.head = [*words[:-1], f"{words[-1]}s" if plural else words[-1]]
            elif match is None:
                self._done.stays(phrase)

    def _let_go(self) -> None:
        """Keep the person of "the same person, in a wheelchair", not what an emoji shows it do."""
        person = self._caption.subject
        if person is None or not person.who or not self._caption.is_emoji:
            return
        if not any(canonical(phrase.split()[-1]) in ("person", person.who) for phrase in self._reading.keep):
            return
        if any(not tone_of(atom.text) and atom.lead != "as" and atom.text not in _WHO for atom in self._reading.add):
            at = self._caption.pieces.index(person) + 1
            if at < len(self._caption.pieces) and isinstance(self._caption.pieces[at], Link):
                self._drop_doing(at)

    def _is_of(self, noun: str) -> bool:
        """Return whether the caption speaks of a face, of a person, at all."""
        if noun == "face":
            return any("face" in phrase.head for phrase in self._caption.phrases)
        return any(phrase.who or phrase.doing or phrase.is_tone for phrase in self._caption.phrases)

    def _add(self, atom: Atom) -> None:
        text, subject = atom.text, self._caption.subject
        kind = lexicon().kind(text)
        if tone := tone_of(text):
            self._tone(tone)
        elif text in words_of("wearers"):
            self._quality(subject, text if text.endswith("'s") else "kids'" if text == "kids" else f"{text}'s")
        elif kind == "style" or lexicon().kind(text.split()[-1]) == "style":
            self._style(text)
        elif atom.lead == "as":
            self._role(atom)
        elif atom.lead in ("in", "on") and group_of(text) == "places" and place_in(self._caption):
            self._place(atom)
        elif atom.role == "view" or kind in _VIEWS:
            self._view(atom, kind or "")
        elif text in lexicon().classes["numbers"] and subject is not None:
            self._count(subject, text)
        elif self._is_quality(atom) and not (len(text.split()) > 1 and self._is_doing(atom)):
            self._qualities(self._described(subject), text)
        elif text in _SHADES:
            self._shade(text)
        elif atom.role == "action" or self._is_doing(atom):
            self._act(subject, text)
        elif self._is_said_of_kept(atom):
            self._quality(subject, text)
        else:
            self._thing(atom)

    def _described(self, subject: Phrase | None) -> Phrase | None:
        """Return what "in grey" is said of: with a picture of a backpack, the backpack and not its wearer."""
        if (
            subject is None
            or not (subject.who or subject.doing)
            or not self._about
            or group_of(self._about) == "people"
        ):
            return subject
        return phrase_of(self._caption, self._about.split()) or subject

    def _is_quality(self, atom: Atom) -> bool:
        words = atom.text.split()
        if words[-1] in _NOUNS_OF_QUALITY or atom.role == "quality":
            return words[-1] not in _NOUNS_OF_QUALITY
        modifiers, head = split_modifiers([*words, "thing"])
        if atom.role != "thing" or atom.determiner:
            return False
        return head == ["thing"] and all(modifier.kind for modifier in modifiers)  # "brown suede"

    def _is_said_of_kept(self, atom: Atom) -> bool:
        """Return whether a bare word of no other kind says how the kept thing is: "the same face, but flushed"."""
        words = atom.text.split()
        bare = not atom.lead and not atom.determiner and not is_plural(words[-1]) and not group_of(words[-1])
        return bare and bool(self._reading.keep) and phrase_of(self._caption, words) is None

    def _swap(self, atom: Atom, old: str) -> None:
        """Read "X instead of Y"; where Y is not said, X takes the place of its kind, else of the subject."""
        subject = self._caption.subject
        if tone := tone_of(atom.text):
            self._tone(tone)
        elif subject is None:
            self._append(atom)
            self._done.went(old)
        elif old:
            self._swap_for(atom, old, subject)
        elif atom.role != "thing" and not atom.determiner:
            self._add(atom)
        else:
            modifiers, head = split_modifiers(atom.text.split())
            if match := phrase_of(self._caption, head):
                self._describe(match, modifiers, "", atom)
            else:
                self._replace(of_group(self._caption, head[-1]) or subject, atom, "")

    def _swap_for(self, atom: Atom, old: str, subject: Phrase) -> None:
        named = modifier_of(self._caption, old)
        match = phrase_of(self._caption, split_modifiers(old.split())[1])
        is_quality = atom.role == "quality" and not atom.determiner
        if named and (is_quality or kind_of(atom.text)):
            self._exchange(*named, atom.text)
        elif match is not None:
            if not self._sure and not (subject.who or subject.doing) and (match is subject or self._caption.is_emoji):
                self._caption.pieces = [match]
            self._replace(match, atom, old)
        elif atom.role == "action" or self._is_doing(atom):
            self._act(subject, atom.text)
            self._done.went(old)
        elif is_quality:
            self._qualities(subject, atom.text)
            self._done.went(f"{old} {' '.join(subject.tail())}" if len(old.split()) == 1 else old)
        else:
            self._contradict(atom, old, subject)

    def _contradict(self, atom: Atom, old: str, subject: Phrase) -> None:
        """Believe the edit where it names something that the caption does not."""
        match = of_group(self._caption, old.rsplit(maxsplit=1)[-1])
        if match is None and (not self._sure or self._caption.prefix or len(self._caption.phrases) == 1):
            self._note(" ".join([other.named() for other in self._caption.phrases if not other.is_tone]), old)
            self._caption.pieces = [subject]
            subject.modifiers, subject.measure = [], ""
            match = subject
        elif match is not None and not same_family(match.noun, old.rsplit(maxsplit=1)[-1]):
            self._note(match.doing or match.named(), old)
            if match is subject and not (match.who or match.doing):  # a caption that errs in this errs in the rest
                self._caption.pieces = [subject]
                subject.modifiers, subject.measure = [], ""
        self._done.went(old)
        if match is None:
            self._append(atom)
            return
        kept = set(self._done.remove)
        self._replace(match, atom, old)
        for phrase in set(self._done.remove) - kept:
            del self._done.remove[phrase]  # what the caption called it was wrong, and is no use as a Remove

    def _delete(self, text: str) -> None:
        words = text.split()
        modifiers, head = split_modifiers(words)
        match = phrase_of(self._caption, head)
        if match is not None and all(
            any(modifier.text == present.text for present in match.modifiers) for modifier in modifiers
        ):
            if len(match.head) > 1 and not match.who and len(head) == 1 and canonical(head[0]) == canonical(match.noun):
                self._done.went(text)
                self._done.stays(" ".join(match.head[:-1]))
                self._done.step("delete", text, "")
                match.head, match.is_new = match.head[:-1], True
                return
            self._done.went(match.named())
            self._done.step("delete", match.named(), "")
            self._drop(match)
            return
        if named := modifier_of(self._caption, text):
            phrase, modifier = named
            self._done.went(" ".join([modifier.text, *self._after(phrase, phrase.modifiers.index(modifier))]))
            self._done.step("delete", modifier.text, "", phrase.named())
            phrase.modifiers.remove(modifier)
            return
        self._done.went(text)
        if self._is_doing(Atom(text)) and (link := link_of(self._caption, words[0])):
            piece = self._caption.pieces[link[0]]
            assert isinstance(piece, Link)
            self._done.step("delete", words[0], "")
            del piece.words[link[1]]
