"""Read one clause: take contrasts and viewpoints out of it, then find its row in the table of patterns."""

from __future__ import annotations

import re

from tapr.factorize.grammar.clauses import Clause
from tapr.factorize.grammar.handlers import HANDLERS, without
from tapr.factorize.grammar.patterns import pattern, rows
from tapr.factorize.grammar.phrases import atoms_in, chunks, role_of
from tapr.factorize.grammar.predicates import describe
from tapr.factorize.grammar.reading import ReadingDraft
from tapr.factorize.grammar.views import take_views
from tapr.factorize.grammar.words import lexicon

_EXCHANGED = re.compile(r"\b(?:instead of|rather than|in place of|and not|not)\b")


def read_clause(draft: ReadingDraft, clause: Clause) -> None:
    """Read one clause into the draft."""
    full_text = pattern("filler").sub("", clause.text).strip()
    text = full_text.removesuffix(" instead")
    if not text or text.startswith("unlike "):
        return
    if _continues_removal(draft, clause, text):
        draft.drop(without(text))
        return
    draft.removing = ""
    before = set(draft.add)
    head, *gone = (part.strip() for part in pattern("contrast").split(text))
    head = take_views(draft, head)
    if head:
        _apply(draft, head)
    fresh = [atom for atom in draft.add if atom not in before]
    names_a_thing = any(gone) and gone[0].split()[0] not in lexicon().classes["places"]
    if not head and not fresh and clause.joint == "," and names_a_thing:
        fresh = list(draft.add)[-1:]  # "a straw hat, not a winter one"
    if text != full_text:
        draft.swaps |= dict.fromkeys(fresh[:1], "")
    for phrase in filter(None, gone):
        _take_away(draft, phrase, fresh)
        if fresh and _EXCHANGED.search(text):
            draft.swaps.setdefault(fresh[0], without(phrase))
        if " no " in f" {text} " or "without" in text:
            draft.removing = "no"
            _take_beside(draft, phrase)


def _apply(draft: ReadingDraft, head: str) -> None:
    for handler, row in rows():
        if match := row.match(head):
            HANDLERS[handler](draft, match)
            return
    describe(draft, head.split())


def _take_away(draft: ReadingDraft, phrase: str, added: list[str]) -> None:
    """Drop the dog of "cat instead of dog". Negation is read the same way: "is not red" is "is", then red that goes."""
    gone = _aligned(phrase, added)
    if gone and draft.unsaid and not added and role_of(gone) == "quality":
        gone = f"{gone} {draft.subject}"  # "the walls are not white"
    draft.drop(gone)


def _aligned(phrase: str, added: list[str]) -> str:
    """Say the removed thing in the words of the added one: "red ones" -> "red flowers", "right" -> "facing right"."""
    directions = lexicon().classes["directions"]
    words, gone = phrase.split(), without(phrase)
    if not gone or not added:
        return gone
    first = added[0].split()
    if words[-1] in ("one", "ones") and len(words) > 1:
        return f"{gone} {first[-1]}"
    if gone in directions and first[-1] in directions:
        verb = next((word for word in first if word.endswith("ing")), "")
        return f"{verb} {gone}".strip()
    return gone


def _take_beside(draft: ReadingDraft, phrase: str) -> None:
    """Add what stands beside the missing thing: "no straps, with a floral print"."""
    words = phrase.split()
    for chunk, (atom, parsed) in list(zip(chunks(words), atoms_in(words), strict=True))[1:]:
        if chunk.lead in ("with", "wearing"):
            draft.read(atom, parsed)


def _continues_removal(draft: ReadingDraft, clause: Clause, text: str) -> bool:
    """Return whether the second thing is gone too: "remove the hand and the spoon", "no buildings and cars"."""
    if not draft.removing or clause.joint not in ("and", ",", "or"):
        return False
    lexis = lexicon()
    first, *rest = text.split()
    openers = lexis.classes["be"] | lexis.classes["have"] | lexis.classes["openers"] | lexis.classes["places"]
    if first in openers or lexis.is_comparative(first) or lexis.is_quality(first):
        return False
    if pattern("contrast").search(f" {text}") or any(row.match(text) for _, row in rows()):
        return False
    if any(word in lexis.classes["be"] or word in lexis.inflections for word in rest):
        return False
    return draft.removing == "remove" or first not in lexis.classes["determiners"]
