"""Read an edit: its words alone, no picture, no model."""

from __future__ import annotations

from tapr.factorize.grammar.clauses import split_clauses
from tapr.factorize.grammar.reading import Reading, ReadingDraft, tidy
from tapr.factorize.grammar.rules import read_clause
from tapr.factorize.grammar.words import lexicon


def read_edit(edit: str) -> Reading:
    """Read what the edit says to add, to remove and to keep."""
    clauses = split_clauses(edit)
    draft = ReadingDraft()
    for clause in clauses:
        if not clause.joint:
            draft.removing = ""
        read_clause(draft, clause)
    words = [word for clause in clauses for word in clause.words]
    lexis = lexicon()
    return Reading(
        add=tuple(draft.add.values()),
        remove=tuple(draft.remove),
        keep=tuple(phrase for phrase in draft.keep if phrase not in draft.add and phrase not in draft.remove),
        changed=frozenset(draft.changed),
        subject="" if draft.subject_is_implied and draft.subject in draft.add else tidy(draft.subject),
        subject_is_known=draft.subject_is_known,
        replaces_subject=draft.replaces_subject,
        swaps=tuple((new, tidy(old)) for new, old in draft.swaps.items() if new in draft.add),
        unknown=tuple(dict.fromkeys(word for word in words if not lexis.knows(word))),
    )
