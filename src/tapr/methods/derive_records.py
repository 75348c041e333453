"""Every method's record from one specification and captions of the reference, so that all of them know the same.

Where a language model is missing (EmojiCIR's rules, the grounded factorizer, specs of one's own) this puts the methods
on equal terms: the target sentence is every method's description, Add and Preserve are what must be there, Remove what
must not. Each record's own file says how it is derived from these words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tapr.factorize.records import SPEC
from tapr.methods.record_kinds import schemas
from tapr.methods.records import Words
from tapr.query.spec import EditSpec

# ways to say the same, where no captions can be drawn by chance. LDRE's fifteen would differ in wording alone, so it
# has these five too.
WORDINGS = ("{}", "a picture of {}", "an illustration of {}", "this shows {}", "{} on a plain background")


def derive(
    spec: EditSpec, edit: str, caption: str | None, drawn: Sequence[tuple[str, str]] = ()
) -> dict[str, dict[str, Any]]:
    """kind -> payload. Without a caption of the reference the methods that need one have no record.

    `drawn`: captions of the reference drawn by chance, each with the edit applied; wordings take their place.
    """
    descriptions = tuple(after for _, after in drawn) or tuple(wording.format(spec.target) for wording in WORDINGS)
    captions: tuple[str, ...] = ()
    if caption is not None:
        captions = tuple(before for before, _ in drawn) or tuple(wording.format(caption) for wording in WORDINGS)
    words = Words(spec, edit, caption, captions, descriptions)
    records: dict[str, dict[str, Any]] = {SPEC: spec.to_dict()}
    for kind, schema in schemas().items():
        payload = None if schema.needs_caption and caption is None else schema.derived(words)
        if payload is not None:
            records[kind] = payload
    return records


def needing_a_caption(kinds: Collection[str]) -> frozenset[str]:
    """Those of the kinds that are not derived without a caption of the reference."""
    return frozenset(kind for kind, schema in schemas().items() if kind in kinds and schema.needs_caption)


def reading_a_caption(kinds: Collection[str]) -> frozenset[str]:
    """Those of the kinds that hold a caption's words, where there is a caption."""
    return frozenset(kind for kind, schema in schemas().items() if kind in kinds and schema.reads_caption)


def drawn_for(kinds: Collection[str]) -> int:
    """How many captions drawn by chance the records of these kinds take."""
    return max((schema.draws for kind, schema in schemas().items() if kind in kinds), default=0)
