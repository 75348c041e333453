"""Apply what an edit says to a caption: exchange, insert, delete, append, each in the place the words point at."""

from __future__ import annotations

from tapr.factorize.caption.edited import Changes, Edited
from tapr.factorize.caption.find import (
    action_after,
    link_of,
    modifier_of,
    of_group,
    phrase_of,
    place_in,
    verb_at,
)
from tapr.factorize.caption.parse import Caption, Link, Modifier, Phrase, split_modifiers
from tapr.factorize.caption.words import canonical, group_of, kind_of, same_family, tone_of, words_of
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading
from tapr.factorize.grammar.words import is_plural, lexicon, singular

_NOUNS_OF_QUALITY = frozenset(("colour", "colours", "fit", "length", "sleeves", "dots", "print"))
_VIEWS = frozenset(("viewpoint", "tint", "time", "weather", "season", "place"))
_SHADES = {"dark colour": "dark", "light colour": "light", "bright colour": "bright", "pale colour": "pale"}
_GENDERS = {"male": "man", "female": "woman"}
_RESTING = frozenset(("sitting", "standing", "laying", "lying", "hanging", "placed", "displayed", "resting"))
_NOT_OF_PEOPLE = frozenset(("colour", "material", "pattern", "sleeves", "fit"))
_OF_CLOTHES = frozenset(("length", "manner", "width"))
_NOWHERE = frozenset(("air", "day", "background", "it"))


class Editor:
    def __init__(self, caption: Caption, reading: Reading, *, sure: bool = True) -> None:
        self._caption = caption
        self._reading = reading
        self._sure = sure
        self._done = Changes()
        self._replaced = False  # the subject gave way to another

    def run(self) -> Edited:
        done, reading = self._done, self._reading
        for phrase in reading.keep:
            self._keep(phrase)
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
        for phrase in self._caption.phrases:
            if not phrase.is_new and phrase.noun not in _NOWHERE:
                done.stays(phrase.named(new=False))
        preserve = [atom for atom in done.preserve if atom not in done.add and atom not in done.remove]
        remove = [atom for atom in done.remove if atom not in done.add]
        kept = [one for phrase in self._caption.phrases for one in phrase.modifiers if not one.is_new]
        nothing_stays = self._replaced and not preserve and not kept
        return Edited(
            target=self._caption.said(),
            add=tuple(done.add),
            preserve=tuple(preserve),
            remove=tuple(remove),
            continuity=0.0 if nothing_stays else None,
            steps=tuple(done.steps),
            notes=tuple(done.notes),
        )

    # what is kept

    def _keep(self, phrase: str) -> None:
        """ "the same blouse" of "women's shirts": the edit's own word names the thing."""
        words = phrase.split()
        noun = canonical(words[-1])
        found = phrase_of(self._caption, words)
        if noun in ("face", "person") and not self._is_of(noun):
            self._note(self._caption.said(), phrase)
            self._caption.pieces = [Phrase(words)]
            return
        if found is not None and not self._sure and not found.who and noun == canonical(found.noun):
            self._caption.pieces = [found]  # what else the caption says may well be wrong
            found.modifiers = []
        if noun in words_of("generic"):
            return
        if found is None or (found.noun != words[-1] and canonical(found.noun) != canonical(words[-1])):
            subject = found or of_group(self._caption, words[-1])
            if subject is not None and not subject.doing:
                self._note(subject.named(), phrase)
                plural = is_plural(subject.noun) and not is_plural(words[-1])
                subject.head = [*words[:-1], f"{words[-1]}s" if plural else words[-1]]
            elif found is None:
                self._done.stays(phrase)

    def _is_of(self, noun: str) -> bool:
        """Does the caption speak of a face, of a person, at all?"""
        if noun == "face":
            return any("face" in phrase.head for phrase in self._caption.phrases)
        return any(phrase.who or phrase.doing or phrase.is_tone for phrase in self._caption.phrases)

    def _note(self, caption: str, edit: str) -> None:
        self._done.notes.append(f'the caption says "{caption}", the edit "{edit}": the edit\'s words are used')

    # what comes

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
        elif atom.role == "quality" and text.split()[-1] not in _NOUNS_OF_QUALITY:
            self._qualities(subject, text)
        elif text in _SHADES:
            self._shade(text)
        elif atom.role == "action" or self._is_doing(text):
            self._act(subject, text)
        elif self._is_said_of_kept(atom):
            self._quality(subject, text)
        else:
            self._thing(atom)

    def _is_said_of_kept(self, atom: Atom) -> bool:
        """ "the same face, but flushed": a bare word of no other kind says how the kept thing is."""
        words = atom.text.split()
        bare = not atom.lead and not atom.determiner and not is_plural(words[-1]) and not group_of(words[-1])
        return bare and bool(self._reading.keep) and phrase_of(self._caption, words) is None

    def _is_doing(self, text: str) -> bool:
        first = text.split(maxsplit=1)[0]
        return first.endswith("ing") and first not in words_of("not verbs") and len(text.split()) <= 3

    def _tone(self, tone: str) -> None:
        new = f"{tone} skin tone"
        old = next((phrase for phrase in self._caption.phrases if phrase.is_tone), None)
        self._done.came(new)
        if old is not None and old.modifiers[0].text == tone:
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
        """ "brown leather" says two things of different kinds."""
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
        if old is not None and old.text == text:
            return
        if old is not None:
            self._exchange(phrase, old, text, came=came)
            return
        if kind == "number":
            self._count(phrase, text)
            return
        if came:
            self._done.came(" ".join([text, *phrase.tail()]))
        self._done.step("insert", "", text, phrase.named())
        last = max(
            (at for at, one in enumerate(phrase.modifiers) if one.kind in ("colour", "wearer", "number")), default=-1
        )
        at = 0 if kind == "wearer" else last + 1
        phrase.modifiers.insert(at, Modifier(text, True))

    def _clothes(self) -> list[Phrase]:
        return [one for one in self._caption.phrases if one.group == "clothes" and not one.is_new]

    def _dress(self, person: Phrase, text: str, kind: str) -> None:
        """People are not blue: what they wear or have with them is."""
        others = [one for one in self._caption.phrases if one is not person and not one.is_new and not one.is_tone]
        has = [one for one in others if one.of_kind(kind)] or self._clothes()
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
        """ "darker" of blue jeans: dark blue."""
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
        """is and are after the number has changed."""
        at = self._caption.pieces.index(phrase) + 1
        if at < len(self._caption.pieces) and isinstance(link := self._caption.pieces[at], Link):
            swap = {"is": "are"} if phrase.is_plural else {"are": "is"}
            link.words[0] = swap.get(link.words[0], link.words[0])

    def _act(self, phrase: Phrase | None, text: str, *, said: str = "") -> None:
        """Another action in the place of the one that is seen."""
        self._done.came(said or text)
        if phrase is None:
            self._caption.pieces.append(Link([text], True))
            return
        emotion = phrase.of_kind("emotion") or phrase.of_kind("pose")
        if emotion is not None:
            self._exchange(phrase, emotion, text, came=False)
            return
        if phrase.noun == "face" and len(text.split()) == 1:
            self._done.add.pop(said or text)
            self._quality(phrase, text)
            return
        if phrase.doing and self._caption.prefix and phrase.who:
            self._done.went(phrase.doing)
            self._done.step("exchange role", phrase.doing, text)
            self._done.stays(phrase.who)
            phrase.head, phrase.is_new = [phrase.who], True
            self._insert_after(phrase, [Link([text], True)])
            return
        found = action_after(self._caption, phrase)
        if found is None:
            self._done.step("insert", "", text, phrase.named())
            self._insert_after(phrase, [Link([text], True)])
            return
        index, at = found
        link = self._caption.pieces[index]
        assert isinstance(link, Link)
        ends = [word for word in link.words[at + 1 :] if word in lexicon().classes["places"]]
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
        self._done.went(" ".join(goes))
        self._done.step("exchange action", " ".join(goes), text)

    def _names_place(self) -> bool:
        return any(atom.lead in lexicon().classes["places"] for atom in self._reading.add)

    def _role(self, atom: Atom) -> None:
        """ "as an astronaut": what the person is."""
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
        found = action_after(self._caption, person)
        if found is None:
            return
        self._drop_doing(found[0])

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
        self._done.went(" ".join(goes).removeprefix("in "))

    def _who(self, phrase: Phrase, who: str) -> None:
        old, doing = phrase.who, phrase.doing
        if old == who:
            return
        self._done.came(who)
        self._done.went(old)
        self._done.step("exchange person", old, who)
        self._done.stays(doing)
        phrase.head, phrase.is_new = [who, *phrase.head[1:]], True
        for modifier in phrase.modifiers:
            modifier.is_new = modifier.is_new or not doing

    def _thing(self, atom: Atom) -> None:
        name, action = _split_action(atom.text)
        measure, _, rest = name.rpartition(" of ")
        modifiers, head = split_modifiers((rest or name).split())
        found = phrase_of(self._caption, head)
        if found is not None and measure and found.measure and found.measure != f"{measure} of":
            found = None
        same_measure = next((one for one in self._caption.phrases if measure and one.measure == f"{measure} of"), None)
        if atom.lead.endswith("-by"):
            self._by(atom)
            return
        place = atom.lead in lexicon().classes["places"] and atom.lead != "in"
        if found is not None and not place:
            self._describe(found, modifiers, action, atom)
        elif same_measure is not None:
            self._substitute(same_measure, atom)
        elif atom.lead in lexicon().classes["places"]:
            self._place(atom)
        elif not atom.lead and atom.determiner != "the" and (old := of_group(self._caption, head[-1])) is not None:
            self._substitute(old, atom)
        elif not atom.lead and atom.determiner in ("a", "an") and self._is_one_thing() and self._caption.subject:
            self._substitute(self._caption.subject, atom)
        else:
            self._append(atom)

    def _is_one_thing(self) -> bool:
        """An emoji, or a caption of one name: another thing takes the place of the whole."""
        return self._caption.prefix.endswith("emoji of") or len(self._caption.phrases) == 1

    def _describe(self, phrase: Phrase, modifiers: list[Modifier], action: str, atom: Atom) -> None:
        """The edit speaks of a thing in the caption: its attributes, number and action change."""
        others = [one for one in modifiers if one.kind != "number"]
        if others and not (phrase.who and others[0].text in _GENDERS):
            self._done.came(" ".join([*(one.text for one in others), *_split_action(atom.text)[0].split()[-1:]]))
        for modifier in modifiers:
            if modifier.kind == "number":
                self._count(phrase, modifier.text)
            elif modifier.text in _GENDERS and phrase.who:
                self._who(phrase, _GENDERS[modifier.text])
            else:
                self._quality(phrase, modifier.text, came=False)
        if action:
            self._act(phrase, action, said=atom.text)
        if not phrase.is_new and phrase.noun != atom.text.split()[-1] and not modifiers and not action:
            self._substitute(phrase, atom)

    def _swap(self, atom: Atom, old: str) -> None:
        """ "X instead of Y"; where Y is not said, X takes the place of its kind, else of the subject."""
        subject = self._caption.subject
        if (tone := tone_of(atom.text)) or subject is None:
            if tone:
                self._tone(tone)
            else:
                self._append(atom)
                self._done.went(old)
            return
        if not old and atom.role != "thing":
            self._add(atom)
            return
        if not old:
            head = split_modifiers(atom.text.split())[1]
            if found := phrase_of(self._caption, head):
                self._describe(found, split_modifiers(atom.text.split())[0], "", atom)
                return
            self._replace(of_group(self._caption, head[-1]) or subject, atom, "")
            return
        if found_modifier := modifier_of(self._caption, old):
            phrase, modifier = found_modifier
            if atom.role == "quality" or kind_of(atom.text):
                self._exchange(phrase, modifier, atom.text)
                return
        if (found := phrase_of(self._caption, split_modifiers(old.split())[1])) is not None:
            if found is subject and not self._sure and not (found.who or found.doing):
                self._caption.pieces = [found]
            self._replace(found, atom, old)
            return
        if atom.role in ("action",) or self._is_doing(atom.text):
            self._act(subject, atom.text)
            self._done.went(old)
            return
        if atom.role == "quality":
            self._qualities(subject, atom.text)
            self._done.went(f"{old} {' '.join(subject.tail())}" if len(old.split()) == 1 else old)
            return
        self._contradict(atom, old, subject)

    def _contradict(self, atom: Atom, old: str, subject: Phrase) -> None:
        """The edit speaks of something that the caption does not name: the edit knows better."""
        found = of_group(self._caption, old.rsplit(maxsplit=1)[-1])
        if found is None and (self._caption.prefix or len(self._caption.phrases) == 1):
            self._note(" ".join([one.named() for one in self._caption.phrases if not one.is_tone]), old)
            self._caption.pieces = [subject]
            subject.modifiers, subject.measure = [], ""
            found = subject
        elif found is not None and not same_family(found.noun, old.rsplit(maxsplit=1)[-1]):
            self._note(found.doing or found.named(), old)
            if found is subject and not (found.who or found.doing):  # a caption that errs in this errs in the rest
                self._caption.pieces = [subject]
                subject.modifiers, subject.measure = [], ""
        self._done.went(old)
        if found is None:
            self._append(atom)
            return
        kept = set(self._done.remove)
        self._replace(found, atom, old)
        for phrase in set(self._done.remove) - kept:
            del self._done.remove[phrase]  # what the caption called it was wrong, and is no use as a Remove

    def _replace(self, phrase: Phrase, atom: Atom, old: str) -> None:
        """A new thing in the place of an old one; of a person only who or what it is changes."""
        head = split_modifiers(atom.text.split())[1]
        group = group_of(head[-1])
        is_role = phrase.doing and canonical(old.rsplit(maxsplit=1)[-1] if old else "") != canonical(phrase.who)
        if group == "people" and phrase.who and len(head) == 1 and not split_modifiers(atom.text.split())[0]:
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
        shared = {one.text for one in phrase.modifiers} & {one.text for one in modifiers}
        own = [one for one in modifiers if one.text not in shared]
        old = " ".join(phrase.head)
        if self._caption.subject is phrase:
            self._replaced = True
        if phrase.who and len(phrase.head) == 1 and group_of(head[-1]) == "people" and not own:
            pass
        if measure and phrase.measure:
            old = f"{phrase.measure} {old}"
        if own:
            kinds = {one.kind for one in own} - {""}
            gone = [one.text for one in phrase.modifiers if one.text not in shared and one.kind in kinds - {"number"}]
            old = " ".join([*gone, old])
            phrase.modifiers = [one for one in phrase.modifiers if one.text in shared or one.kind not in kinds]
        new = " ".join([*(f"{measure} of".split() if measure else []), *(one.text for one in own), *head])
        self._done.came(new)
        self._done.went(old)
        self._done.step("exchange subject" if self._replaced else "exchange", old, new)
        phrase.modifiers += [Modifier(one.text, True) for one in own if one.kind != "number"]
        if measure:
            phrase.measure = f"{measure} of"
        elif phrase.measure and group_of(head[-1]) != phrase.group:
            phrase.measure = ""
        phrase.determiner = atom.determiner or ("" if is_plural(head[-1]) else phrase.determiner)
        phrase.head, phrase.is_new = head, True
        for one in own:
            if one.kind == "number" and one.text != "one":
                phrase.counted(one.text)

    def _place(self, atom: Atom) -> None:
        """ "on a beach" in the place of "in a field"."""
        head = split_modifiers(atom.text.split())[1]
        lead = atom.lead.split("-")
        if atom.lead == "in" and group_of(head[-1]) in ("clothes", ""):
            worn = next((one for one in self._caption.phrases if one.group == "clothes" and not one.is_new), None)
            if worn is not None and group_of(head[-1]) == "clothes" and worn is not self._caption.subject:
                self._substitute(worn, atom)
                return
        if atom.lead == "in" and self._caption.prefix.endswith("emoji of") and self._posture(atom):
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
        modifiers = [Modifier(one.text, True) for one in split_modifiers(atom.text.split())[0]]
        old.determiner, old.measure, old.modifiers, old.head, old.is_new = atom.determiner, "", modifiers, head, True

    def _posture(self, atom: Atom) -> bool:
        """A person "in a wheelchair" is no longer "in lotus position", nor running."""
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
        new = Phrase(head, atom.determiner, "", [Modifier(one.text, True) for one in modifiers], True)
        self._insert_after(subject, [Link(["in"], True), new])
        return True

    def _by(self, atom: Atom) -> None:
        """ "worn by a woman": where the thing lay before is no more, and whoever has it may change."""
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

    def _append(self, atom: Atom) -> None:
        self._done.came(atom.text)
        measure, _, rest = atom.text.rpartition(" of ")
        modifiers, head = split_modifiers((rest or atom.text).split())
        phrase = Phrase(
            head,
            atom.determiner,
            f"{measure} of" if measure else "",
            [Modifier(one.text, True) for one in modifiers],
            True,
        )
        lead = atom.lead.replace("-", " ") or "with"
        self._done.step("append", "", f"{lead} {phrase.said()}")
        if not self._caption.pieces:
            self._caption.pieces.append(phrase)
        elif lead in ("with", "wearing"):
            self._after_subject([Link([lead], True), phrase])
        else:
            self._caption.pieces += [Link(lead.split(), True), phrase]

    def _after_subject(self, pieces: list[Link | Phrase]) -> None:
        caption = self._caption.pieces
        has_verb = any(isinstance(piece, Link) and verb_at(piece) is not None for piece in caption)
        subject = self._caption.subject
        if subject is None or not has_verb or self._caption.prefix:
            listed = any(isinstance(piece, Link) and piece.words == ["with"] for piece in caption)
            if listed and isinstance(pieces[0], Link) and pieces[0].words == ["with"]:
                pieces[0].words = ["and"]
            caption += pieces
        else:
            self._insert_after(subject, pieces)

    def _insert_after(self, phrase: Phrase, pieces: list[Link | Phrase]) -> None:
        at = self._caption.pieces.index(phrase) + 1
        self._caption.pieces[at:at] = pieces

    # what goes

    def _delete(self, text: str) -> None:
        words = text.split()
        modifiers, head = split_modifiers(words)
        found = phrase_of(self._caption, head)
        if found is not None and all(any(one.text == own.text for own in found.modifiers) for one in modifiers):
            if len(found.head) > 1 and not found.who and len(head) == 1 and canonical(head[0]) == canonical(found.noun):
                self._done.went(text)
                self._done.stays(" ".join(found.head[:-1]))
                self._done.step("delete", text, "")
                found.head, found.is_new = found.head[:-1], True
                return
            self._done.went(found.named())
            self._done.step("delete", found.named(), "")
            self._drop(found)
            return
        if named := modifier_of(self._caption, text):
            phrase, modifier = named
            self._done.went(" ".join([modifier.text, *self._after(phrase, phrase.modifiers.index(modifier))]))
            self._done.step("delete", modifier.text, "", phrase.named())
            phrase.modifiers.remove(modifier)
            return
        self._done.went(text)
        if self._is_doing(text) and (link := link_of(self._caption, words[0])):
            piece = self._caption.pieces[link[0]]
            assert isinstance(piece, Link)
            self._done.step("delete", words[0], "")
            del piece.words[link[1]]

    def _drop(self, phrase: Phrase) -> None:
        """Take a phrase out with the words that tie it to the others."""
        pieces = self._caption.pieces
        at = pieces.index(phrase)
        after = pieces[at + 1] if at + 1 < len(pieces) else None
        before = pieces[at - 1] if at else None
        if isinstance(after, Link) and after.words[0] in ("and", ",") and len(after.words) == 1:
            del pieces[at : at + 2]
            return
        if not at:
            del pieces[: 2 if isinstance(after, Link) else 1]
            return
        if isinstance(after, Link) and after.words[-1] in ("it", "them"):
            del pieces[at + 1]
        del pieces[at]
        if isinstance(before, Link):
            self._loosen(before)

    def _loosen(self, link: Link) -> None:
        """ "is standing next to" without what follows is "is standing"; "wearing" without it is nothing."""
        at = verb_at(link)
        if at is None or at == len(link.words) - 1 or link.words[at] in ("filled", "topped", "covered", "surrounded"):
            self._caption.pieces.remove(link)
        else:
            link.words = link.words[: at + 1]

    def _forget(self, kind: str) -> None:
        """ "a different colour": the one that is seen goes."""
        for phrase in self._caption.phrases[:1]:
            if modifier := phrase.of_kind(kind):
                self._done.went(" ".join([modifier.text, *phrase.tail()]))
                self._done.step("delete", modifier.text, "", phrase.named())
                phrase.modifiers.remove(modifier)


def _split_action(text: str) -> tuple[str, str]:
    """ "cat sleeping" -> ("cat", "sleeping")."""
    words = text.split()
    for at, word in enumerate(words[1:], start=1):
        if (
            word.endswith("ing")
            and word not in words_of("not verbs")
            and (word in lexicon().inflections or at == len(words) - 1)
        ):
            return " ".join(words[:at]), " ".join(words[at:])
    return text, ""


def plain(noun: str) -> str:
    return singular(noun)
