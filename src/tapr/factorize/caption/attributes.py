"""Attributes: colour, material, number, skin tone, who a person is. A new one replaces the one of its kind."""

from __future__ import annotations

from tapr.factorize.caption.parse import Link, Modifier, Phrase, split_modifiers
from tapr.factorize.caption.words import kind_of
from tapr.factorize.caption.work import CaptionWork
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import lexicon

_SHADES = {"dark colour": "dark", "light colour": "light", "bright colour": "bright", "pale colour": "pale"}
_GENDERS = {"male": "man", "female": "woman"}
_NOT_OF_PEOPLE = frozenset(("colour", "material", "pattern", "sleeves", "fit"))
_OF_CLOTHES = frozenset(("length", "manner", "width"))


class Attributes(CaptionWork):
    """Exchanges and inserts attributes."""

    def _tone(self, tone: str) -> None:
        new = f"{tone} skin tone"
        old = next((phrase for phrase in self._caption.phrases if phrase.is_tone), None)
        self._done.came(new)
        if old is not None and old.modifiers and old.modifiers[0].text == tone:
            return
        if old is not None:
            self._done.went(old.named())
            self._done.step("exchange skin tone", old.named(), new)
            self._caption.pieces.remove(old)
        else:
            self._done.step("add skin tone", "", new)
        phrase = Phrase(["skin", "tone"], modifiers=[Modifier(tone)], is_new=True)
        if self._caption.prefix or not self._caption.pieces:
            self._caption.pieces.append(phrase)
        else:
            self._after_subject([Link(["with"], True), phrase])

    def _style(self, text: str) -> None:
        article = "an" if text[0] in "aeiou" else "a"
        self._done.came(text)
        self._done.step("style", self._caption.prefix, text)
        self._caption.prefix = f"{article} {text} of"

    def _view(self, atom: Atom, kind: str) -> None:
        self._done.came(atom.text)
        for phrase in self._caption.phrases:
            if not phrase.is_new and kind and lexicon().kind(phrase.noun) == kind:
                self._done.went(phrase.noun)
                self._done.step(f"exchange {kind}", phrase.named(), atom.text)
                phrase.head, phrase.modifiers, phrase.is_new = [atom.text], [], True
                return
            if modifier := phrase.of_kind(kind):
                self._exchange(phrase, modifier, atom.text, came=False)
                return
        lead = "in" if kind in ("weather", "season") or atom.text == "daylight" else "at" if kind == "time" else ","
        self._done.step("append", "", f"{lead} {atom.text}".strip(", "))
        self._caption.pieces += [Link([lead], True), Phrase(atom.text.split(), is_new=True)]

    def _qualities(self, phrase: Phrase | None, text: str) -> None:
        """Apply each quality: "brown leather" says two things of different kinds."""
        if kind_of(text) or phrase is None:
            self._quality(phrase, text)
            return
        modifiers, head = split_modifiers([*text.split(), "thing"])
        for modifier in modifiers:
            self._quality(phrase, modifier.text)
        if head != ["thing"]:
            self._quality(phrase, " ".join(head[:-1]))

    def _quality(self, phrase: Phrase | None, text: str, *, came: bool = True) -> None:
        if phrase is None:
            self._done.came(text)
            self._caption.pieces.append(Phrase(["something"], modifiers=[Modifier(text, True)], is_new=True))
            return
        if text in _GENDERS and phrase.who:
            self._who(phrase, _GENDERS[text])
            return
        kind = kind_of(text)
        is_person = phrase.who or phrase.doing
        if is_person and text == "black and white":
            self._view(Atom("black and white photo"), "tint")
            return
        if is_person and (kind in _NOT_OF_PEOPLE or (kind in _OF_CLOTHES and self._clothes())):
            self._dress(phrase, text, kind)
            return
        old = phrase.of_kind(kind)
        if old is not None:
            if old.text != text:
                self._exchange(phrase, old, text, came=came)
            return
        if kind == "number":
            self._count(phrase, text)
            return
        if came:
            self._done.came(" ".join([text, *phrase.tail()]))
        self._done.step("insert", "", text, phrase.named())
        last = max(
            (at for at, modifier in enumerate(phrase.modifiers) if modifier.kind in ("colour", "wearer", "number")),
            default=-1,
        )
        at = 0 if kind == "wearer" else last + 1
        phrase.modifiers.insert(at, Modifier(text, True))

    def _clothes(self) -> list[Phrase]:
        return [phrase for phrase in self._caption.phrases if phrase.group == "clothes" and not phrase.is_new]

    def _dress(self, person: Phrase, text: str, kind: str) -> None:
        """Give a colour that is said of a person to what the person wears or has with them."""
        others = [
            phrase
            for phrase in self._caption.phrases
            if phrase is not person and not phrase.is_new and not phrase.is_tone
        ]
        has = [phrase for phrase in others if phrase.of_kind(kind)] or self._clothes()
        if has:
            self._quality(has[0], text)
            return
        self._done.came(text)
        self._done.step("append", "", f"in {text}")
        self._insert_after(person, [Link(["in", text], True)])

    def _exchange(self, phrase: Phrase, old: Modifier, text: str, *, came: bool = True) -> None:
        at = phrase.modifiers.index(old)
        rest = self._after(phrase, at)
        self._done.step(f"exchange {old.kind or 'attribute'}", old.text, text, " ".join(phrase.head))
        if came:
            self._done.came(" ".join([text, *rest]))
        if not old.is_new:
            self._done.went(" ".join([old.text, *rest]))
        phrase.modifiers[at] = Modifier(text, True)

    def _after(self, phrase: Phrase, at: int) -> list[str]:
        if phrase.modifiers[at].kind == "wearer":
            return phrase.head
        if phrase.modifiers[at].kind in ("colour", "number"):
            return phrase.tail()
        return [phrase.who] if phrase.who else phrase.head

    def _shade(self, text: str) -> None:
        """Apply a shade: "darker" of blue jeans is dark blue."""
        subject = self._caption.subject
        colour = subject.of_kind("colour") if subject is not None else None
        if colour is not None and _SHADES[text] in ("dark", "light"):
            assert subject is not None
            self._exchange(subject, colour, f"{_SHADES[text]} {colour.text.split()[-1]}")
            return
        self._done.came(text)
        if subject is not None:
            if colour is not None:
                self._done.went(" ".join([colour.text, *subject.tail()]))
                subject.modifiers.remove(colour)
            self._done.step("insert", "", _SHADES[text], subject.named())
            subject.modifiers.append(Modifier(_SHADES[text], True))

    def _count(self, phrase: Phrase, number: str) -> None:
        if not phrase.head:
            return
        old = phrase.of_kind("number")
        before = phrase.named(new=False)
        if old is not None and not old.is_new:
            self._done.went(f"{old.text} {' '.join(phrase.head)}")
        phrase.counted(number)
        self._done.came(f"{number} {' '.join(phrase.head)}")
        self._done.step("exchange number", before, phrase.named())
        self._agree(phrase)
        phrase.is_new = True

    def _agree(self, phrase: Phrase) -> None:
        """Correct "is" and "are" after the number has changed."""
        at = self._caption.pieces.index(phrase) + 1
        if at < len(self._caption.pieces) and isinstance(link := self._caption.pieces[at], Link):
            swap = {"is": "are"} if phrase.is_plural else {"are": "is"}
            link.words[0] = swap.get(link.words[0], link.words[0])

    def _who(self, phrase: Phrase, who: str) -> None:
        old, doing = phrase.who, phrase.doing
        self._done.came(who)
        if old == who:
            return
        self._done.went(old)
        self._done.step("exchange person", old, who)
        phrase.is_new = True
        if self._caption.is_emoji and not self._sure:  # what else it says of the person is left to the picture
            self._caption.pieces = [piece for piece in self._caption.pieces if piece is phrase or piece.is_new]
            phrase.head = [who]
            return
        self._done.stays(doing)
        phrase.head = [who, *doing.split()]
        for modifier in phrase.modifiers:
            modifier.is_new = modifier.is_new or not doing

    def _forget(self, kind: str) -> None:
        """Drop the attribute that is seen: "a different colour"."""
        for phrase in self._caption.phrases[:1]:
            if modifier := phrase.of_kind(kind):
                self._done.went(" ".join([modifier.text, *phrase.tail()]))
                self._done.step("delete", modifier.text, "", phrase.named())
                phrase.modifiers.remove(modifier)
