"""The marks of an answer: which of its pictures show what was asked. The page, the report and the API show these."""

from __future__ import annotations

from dataclasses import replace

from tapr.explain.calibration import Pictures, words_of
from tapr.result import Contribution, Found, Ranking

Marks = tuple[Found | None, ...]  # one per contribution of a hit; None: nothing to say


def marks(ranking: Ranking) -> list[Marks]:
    """Per hit, in the order of its contributions.

    Nothing is said of an atom where all pictures agree: a tick on every card tells none apart.
    """
    atoms = _atoms(ranking)
    if not atoms:
        return [(None,) * len(hit.contributions) for hit in ranking.hits]
    pictures = Pictures.of(ranking.gallery, [hit.id for hit in ranking.hits])
    told = dict(zip(atoms, words_of(atoms, pictures, ranking.gallery.encoder, ranking.gallery), strict=True))
    shown = {atom: words for atom, words in told.items() if len(words) == 1 or len(set(words)) > 1}
    return [
        tuple(
            shown[part.text][place] if part.peak is not None and part.text in shown else None
            for part in hit.contributions
        )
        for place, hit in enumerate(ranking.hits)
    ]


def marked(ranking: Ranking) -> Ranking:
    """The same answer, with the marks in its contributions."""
    hits = [
        replace(hit, contributions=tuple(map(_with, hit.contributions, told)))
        for hit, told in zip(ranking.hits, marks(ranking), strict=True)
    ]
    return replace(ranking, hits=tuple(hits))


def _with(part: Contribution, found: Found | None) -> Contribution:
    return part if found is None else replace(part, found=found)


def _atoms(ranking: Ranking) -> list[str]:
    parts = ranking.hits[0].contributions if ranking.hits else ()
    return list(dict.fromkeys(part.text for part in parts if part.peak is not None))


def is_met(sign: int, found: Found | None) -> bool | None:
    """Whether a wish is fulfilled: what is wanted is found, what must go (sign -1) is not. None: not known."""
    if found is None or found == "maybe":
        return None
    return (found == "found") == (sign > 0)


def said(sign: int, found: Found | None) -> str:
    """The word that people read; "" where there is nothing to say."""
    if sign > 0:
        return {"found": "found", "maybe": "maybe"}.get(found or "", "")
    return {"found": "still there", "not found": "mostly gone"}.get(found or "", "")
