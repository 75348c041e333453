"""The kinds of records: their schemas, how each is derived from one spec, and which records a method cannot use.

Records are derived if there is no language model, from one spec and captions of the reference, so that all methods know
the same. The target sentence is every method's description; Add and Preserve are what must be shown, Remove is what
must not. Each record class defines its own rule (`derived`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.methods.base import Method, QueryLike
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.methods.registry import METHODS
from tapr.query.spec import EditSpec

# different wordings, used if captions cannot be sampled. LDRE's fifteen would differ in wording only, so it uses these
# five too.
WORDINGS = ("{}", "a picture of {}", "an illustration of {}", "this shows {}", "{} on a plain background")


def schemas() -> dict[str, type[Payload]]:
    """Return the schema of every kind except `spec`, which is EditSpec. Of two of one kind, the first one counts."""
    by_kind: dict[str, type[Payload]] = {}
    for _, method in METHODS.working():
        for record in method.records:
            by_kind.setdefault(record.kind, record)
    return by_kind


def unusable_records(method: Method, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
    """Return query id -> why the method cannot use its records: missing, failed, invalid or inconsistent."""
    reasons: dict[str, str] = {}
    for query in queries:
        try:
            if method.reads_spec:
                records.spec(query.id)
            for record in method.records:
                records.get(record, query.id)
        except BadInput as error:
            reasons[query.id] = str(error)
    return reasons | method.inconsistent_records([query for query in queries if query.id not in reasons], records)


def derive(
    spec: EditSpec, edit: str, caption: str | None, drawn: Sequence[tuple[str, str]] = ()
) -> dict[str, dict[str, Any]]:
    """Return kind -> payload. Records that need a caption are left out if there is none.

    `drawn`: sampled captions of the reference, each with its edited version; without them, WORDINGS are used.
    """
    descriptions = tuple(after for _, after in drawn) or tuple(wording.format(spec.target) for wording in WORDINGS)
    captions: tuple[str, ...] = ()
    if caption is not None:
        captions = tuple(before for before, _ in drawn) or tuple(wording.format(caption) for wording in WORDINGS)
    words = RecordSource(spec, edit, caption, captions, descriptions)
    records: dict[str, dict[str, Any]] = {SPEC: spec.to_dict()}
    for kind, schema in schemas().items():
        payload = None if schema.needs_caption and caption is None else schema.derived(words)
        if payload is not None:
            records[kind] = payload
    return records


def kinds_needing_caption(kinds: Collection[str]) -> frozenset[str]:
    """Return the kinds that cannot be derived without a caption of the reference."""
    return frozenset(kind for kind, schema in schemas().items() if kind in kinds and schema.needs_caption)


def kinds_using_caption(kinds: Collection[str]) -> frozenset[str]:
    """Return the kinds that use a caption if there is one."""
    return frozenset(kind for kind, schema in schemas().items() if kind in kinds and schema.reads_caption)


def sampled_captions_needed(kinds: Collection[str]) -> int:
    """Return how many sampled captions these kinds need."""
    return max((schema.sampled_captions for kind, schema in schemas().items() if kind in kinds), default=0)
