"""A caption while it is edited: inserting phrases and removing them."""

from __future__ import annotations

from tapr.factorize.caption.edited import CaptionChanges
from tapr.factorize.caption.find import verb_at
from tapr.factorize.caption.parse import Link, Modifier, ParsedCaption, Phrase, split_modifiers
from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.reading import Reading


class CaptionWork:
    """The caption, what the edit says, and what has been done so far."""

    def __init__(self, caption: ParsedCaption, reading: Reading, *, sure: bool = True, about: str = "") -> None:
        self._caption = caption
        self._reading = reading
        self._sure = sure
        self._about = about  # what the picture is of, by its tags
        self._done = CaptionChanges()

    def _note(self, caption: str, edit: str) -> None:
        self._done.notes.append(f'the caption says "{caption}", the edit "{edit}": the edit\'s words are used')

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

    def _append(self, atom: Atom) -> None:
        self._done.came(atom.text)
        measure, _, rest = atom.text.rpartition(" of ")
        modifiers, head = split_modifiers((rest or atom.text).split())
        phrase = Phrase(
            head,
            atom.determiner,
            f"{measure} of" if measure else "",
            [Modifier(modifier.text, True) for modifier in modifiers],
            True,
        )
        lead = atom.lead.replace("-", " ") or "with"
        self._done.step("append", "", f"{lead} {phrase.as_text()}")
        if not self._caption.pieces:
            self._caption.pieces.append(phrase)
        elif lead in ("with", "wearing"):
            self._after_subject([Link([lead], True), phrase])
        else:
            self._caption.pieces += [Link(lead.split(), True), phrase]

    def _drop(self, phrase: Phrase) -> None:
        """Remove a phrase, with the words that link it to the others."""
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
        """Drop the words that need what followed: "is standing next to" becomes "is standing", "wearing" nothing."""
        at = verb_at(link)
        if at is None or at == len(link.words) - 1 or link.words[at] in ("filled", "topped", "covered", "surrounded"):
            self._caption.pieces.remove(link)
        else:
            link.words = link.words[: at + 1]
