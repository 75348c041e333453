"""A caption as pieces: noun phrases, and the words that link them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tapr.factorize.caption.words import TONE, group_of, is_modifier, kind_of, words_of
from tapr.factorize.grammar.words import is_plural, lexicon, plural, singular

_PREFIX = re.compile(
    r"^((?:an? |the )?(?:black and white |colou?r )?"
    r"(?:emoji|photo|photograph|picture|image|close[ -]?up|view|drawing|painting)"
    r"(?: (?:view|picture|photo|photograph|shot|image))? of) "
)
_TOKEN = re.compile(r"[^\W_](?:[\w'’\-]*[\w'’])?|,")
_ALWAYS_LINKS = frozenset(
    ("and", "or", "but", "with", "without", "to", "for", "as", ",", "like", "into", "holding", "wearing")
)
_MANY = frozenset(
    (
        "many",
        "few",
        "several",
        "multiple",
        "numerous",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
    )
)


@dataclass
class Modifier:
    text: str
    is_new: bool = False

    @property
    def kind(self) -> str:
        return kind_of(self.text)


@dataclass(eq=False)
class Phrase:
    """ "a large herd of brown cows": determiner, measure, modifiers, head."""

    head: list[str]
    determiner: str = ""
    measure: str = ""
    modifiers: list[Modifier] = field(default_factory=list)
    is_new: bool = False

    @property
    def noun(self) -> str:
        return self.head[-1] if self.head else ""

    @property
    def who(self) -> str:
        """Return the person in "man firefighter" or "woman"; "" when it is no person."""
        return self.head[0] if self.head and group_of(self.head[0]) == "people" else ""

    @property
    def doing(self) -> str:
        """Return what the person is: "firefighter"."""
        rest = self.head[1:] if self.who else self.head
        return " ".join(rest) if rest and (self.who or group_of(rest[-1]) == "roles") else ""

    @property
    def group(self) -> str:
        return "people" if self.who else group_of(self.noun)

    @property
    def vessel(self) -> str:
        """Return what it is in: "bowl" in "a bowl of soup"; "" where it is in nothing."""
        words = self.measure.split()
        return words[-2] if len(words) > 1 and words[-2] not in words_of("groups") else ""

    @property
    def is_tone(self) -> bool:
        return self.head == ["skin", "tone"]

    @property
    def is_plural(self) -> bool:
        return is_plural(self.noun)

    def of_kind(self, kind: str) -> Modifier | None:
        return next((modifier for modifier in self.modifiers if kind and modifier.kind == kind), None)

    def tail(self) -> list[str]:
        """Return the words an attribute is said of: all that stands after colour and wearer."""
        last = max(
            (at for at, modifier in enumerate(self.modifiers) if modifier.kind in ("colour", "wearer", "number")),
            default=-1,
        )
        after = [
            modifier.text
            for modifier in self.modifiers[last + 1 :]
            if not modifier.is_new and modifier.kind not in _FREE_KINDS
        ]
        return [*after, *([self.who] if self.who else self.head)]

    def named(self, *, new: bool = True) -> str:
        """Return the phrase without its determiner; without what came by the edit, where asked."""
        modifiers = [modifier.text for modifier in self.modifiers if new or not modifier.is_new]
        return " ".join([self.measure, *modifiers, *self.head]).strip()

    def as_text(self) -> str:
        words = self.named()
        if not self.determiner or words.split()[0] in _MANY | {"one"}:
            return words
        if self.determiner in ("a", "an"):
            return ("an " if words[0] in "aeiou" else "a ") + words
        return f"{self.determiner} {words}"

    def counted(self, number: str) -> None:
        """Put the phrase into the number: "one dog", "two dogs"."""
        self.modifiers = [modifier for modifier in self.modifiers if modifier.kind != "number"]
        self.modifiers.insert(0, Modifier(number, is_new=True))
        self.determiner = ""
        if self.measure.split()[-2:-1] and self.measure.split()[-2] in words_of("groups"):
            self.measure = ""
        if self.head:
            self.head = [*self.head[:-1], (plural if number in _MANY else singular)(self.head[-1])]


_FREE_KINDS = frozenset(("size", "length", "height", "age", "shape", "width", "weight"))


@dataclass(eq=False)
class Link:
    words: list[str]
    is_new: bool = False


Piece = Phrase | Link


@dataclass(eq=False)
class ParsedCaption:
    prefix: str  # "an emoji of"
    pieces: list[Piece]

    @property
    def phrases(self) -> list[Phrase]:
        return [piece for piece in self.pieces if isinstance(piece, Phrase)]

    @property
    def is_emoji(self) -> bool:
        return self.prefix.endswith("emoji of")

    @property
    def subject(self) -> Phrase | None:
        return next(iter(self.phrases), None)

    def as_text(self) -> str:
        words = [
            self.prefix,
            *(" ".join(piece.words) if isinstance(piece, Link) else piece.as_text() for piece in self.pieces),
        ]
        text = " ".join(filter(None, words)).replace(" ,", ",")
        return re.sub(r"\bof an? (?=\w)", "of ", text) if self.prefix.endswith("emoji of") else text


def parse(caption: str) -> ParsedCaption:
    """Cut a caption into its pieces. Words of no list count as parts of names."""
    text = caption.strip().casefold().rstrip(".").replace(":", " ").replace("’", "'")
    match = _PREFIX.match(text)
    prefix, text = (match[1], text[match.end() :]) if match else ("", text)
    while again := _PREFIX.match(text):
        text = text[again.end() :]
    text = TONE.sub(lambda tone: tone[0].replace(" ", "_") if tone[0].endswith("tone") else tone[0], text)
    return ParsedCaption(prefix, _Reader(_TOKEN.findall(text.replace("_", "·")) or []).read())


class _Reader:
    """Reads from left to right; every word joins the open phrase, opens one, or links."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._pieces: list[Piece] = []
        self._open: list[str] = []
        self._determiner = ""
        self._measure = ""

    def read(self) -> list[Piece]:
        at = 0
        while at < len(self._words):
            at = self._word(at)
        self._close()
        return self._pieces

    def _word(self, at: int) -> int:
        word = self._words[at]
        after = self._words[at + 1] if at + 1 < len(self._words) else ""
        lexis = lexicon()
        if word.startswith(("light", "medium", "dark", "yellow")) and after == "skin":
            self._close()
            if self._pieces and isinstance(self._pieces[-1], Link) and self._pieces[-1].words == ["wearing"]:
                self._pieces.pop()  # a captioner that did not know what is worn
            self._pieces.append(Phrase(["skin", "tone"], modifiers=[Modifier(word)]))
            return at + 3
        if word in lexis.classes["determiners"] and not (self._open and word in ("her", "that")):
            self._close()
            self._determiner = word
        elif word == "and" and self._open and lexis.is_colour(self._open[-1]) and lexis.is_colour(after):
            self._open += [word, after]
            return at + 2
        elif word == "of" and self._open and self._open[-1] not in words_of("edges"):
            self._measure = " ".join([self._measure, *self._open, "of"]).strip()
            self._open = []
            if after in ("a", "an", "the"):
                return at + 2
        elif (word == "no" and self._pieces and isinstance(self._pieces[-1], Link)) or self._links(word, after):
            sport = (
                self._open[1:] if self._open and word.endswith("ing") and group_of(self._open[0]) == "people" else []
            )
            self._open = self._open[: len(self._open) - len(sport)]
            for part in [*sport, word]:  # "man mountain biking"
                self._link(part)
        elif word in lexis.classes["numbers"] or (word in words_of("wearers") and word.endswith("'s")):
            self._close()
            self._open.append(word)
        else:
            self._open.append(word)
        return at + 1

    def _links(self, word: str, after: str) -> bool:
        lexis = lexicon()
        if word in _ALWAYS_LINKS or word in words_of("links") or word == "of":
            return not (word == "holding" and not self._pieces and not self._open)
        if (
            any(word in lexis.classes[group] for group in ("places", "be", "have", "adverbs", "pronouns"))
            and word != "one"
            and not (word == "can" and (self._open or self._determiner))  # of soda
        ):
            return True
        has_noun = bool(self._open) and not is_modifier(self._open[-1])
        if word.endswith("ing") and word not in words_of("not verbs"):
            opens = not self._open and not self._determiner and not self._measure and bool(self._pieces)
            ends = not after or self._links_surely(after)
            return has_noun or opens or (ends and bool(self._open or self._pieces))
        is_bound = word in lexis.classes["bound participles"] or word in (
            "dressed",
            "seen",
            "worn",
            "shown",
            "displayed",
        )
        after_be = not self._open and not self._determiner and self._after_be()
        if is_bound or (word.endswith("ed") and self._links_surely(after)):
            return has_noun or after_be
        inflected = word in lexis.inflections and (lexis.inflections[word] != word or self._links_surely(after))
        return (has_noun or self._after_to()) and inflected and word not in lexis.classes["nouns like verbs"]

    def _after_be(self) -> bool:
        last = self._pieces[-1] if self._pieces else None
        return isinstance(last, Link) and last.words[-1] in ("is", "are", "was", "were", "being")

    def _after_to(self) -> bool:
        last = self._pieces[-1] if self._pieces else None
        return not self._open and isinstance(last, Link) and last.words[-1] == "to"

    def _links_surely(self, word: str) -> bool:
        lexis = lexicon()
        return word in _ALWAYS_LINKS or any(word in lexis.classes[group] for group in ("places", "be", "determiners"))

    def _link(self, word: str) -> None:
        self._close()
        if self._pieces and isinstance(self._pieces[-1], Link):
            self._pieces[-1].words.append(word)
        else:
            self._pieces.append(Link([word]))

    def _close(self) -> None:
        words, self._open = self._open, []
        if words and words[-1] in words_of("edges") and self._pieces and isinstance(self._pieces[-1], Link):
            self._pieces[-1].words += [self._determiner, *words] if self._determiner else words  # "on the side" of
        elif words:
            modifiers, head = split_modifiers(words)
            if self._determiner in ("a", "an") and not self._measure and is_plural(head[-1]):  # a captioner's slip
                if head[-1] in words_of("pairs"):
                    self._determiner = ""
                else:
                    head[-1] = singular(head[-1])
            self._pieces.append(Phrase(head, self._determiner, self._measure, modifiers))
        elif self._measure:
            self._pieces.append(Phrase(self._measure.removesuffix(" of").split(), self._determiner))
        self._determiner = self._measure = ""


def split_modifiers(words: list[str]) -> tuple[list[Modifier], list[str]]:
    """Split "navy blue striped shirt" into navy blue, striped; shirt. A noun is always left."""
    lexis = lexicon()
    modifiers: list[Modifier] = []
    at = 0
    while at < len(words) - 1:
        word = words[at]
        if f"{word}-{words[at + 1]}" in words_of("compounds"):
            break
        is_first = word.endswith("ing") and word not in words_of("not verbs") and not modifiers
        if not (is_modifier(word) or is_first or word.endswith("'s")) or (group_of(word) and not kind_of(word)):
            break
        end = at + 1
        if lexis.is_colour(word) or word in lexis.classes["shades"]:
            while end < len(words) - 1 and (
                lexis.is_colour(words[end]) or (words[end] == "and" and lexis.is_colour(words[end + 1]))
            ):
                end += 1
        modifiers.append(Modifier(" ".join(words[at:end])))
        at = end
    return modifiers, words[at:]
