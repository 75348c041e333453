"""Every method's record from one specification and captions of the reference, so that all of them know the same.

Where a language model is missing (EmojiCIR's rules, the grounded factorizer, specs of one's own) this puts the methods
on equal terms: the target sentence is every method's description, Add and Preserve are what must be there, Remove what
must not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tapr.factorize.records import SPEC
from tapr.methods.cirevl import CirevlRecord
from tapr.methods.cotmr import CotmrRecord
from tapr.methods.ldre import CAPTIONS, LdreRecord
from tapr.methods.osrcir import OsrcirRecord
from tapr.methods.sdr_cir import SdrRecord
from tapr.methods.soft import SoftRecord
from tapr.methods.stitch import DESCRIPTIONS, StitchRecord
from tapr.spec import EditSpec

# ways to say the same, where no captions can be drawn by chance. LDRE's fifteen would differ in wording alone, so it
# has these five too.
WORDINGS = ("{}", "a picture of {}", "an illustration of {}", "this shows {}", "{} on a plain background")

NEED_A_CAPTION = frozenset((CirevlRecord.kind, LdreRecord.kind))  # of the reference: no record without one
READ_A_CAPTION = NEED_A_CAPTION | {OsrcirRecord.kind, SoftRecord.kind, StitchRecord.kind}  # where there is one


def derive(
    spec: EditSpec, edit: str, caption: str | None, drawn: Sequence[tuple[str, str]] = ()
) -> dict[str, dict[str, Any]]:
    """kind -> payload. Without a caption of the reference the methods that need one have no record.

    `drawn`: captions of the reference drawn by chance, each with the edit applied; wordings take their place.
    """
    target, wanted = spec.target, [*spec.add, *spec.preserve]
    descriptions = [after for _, after in drawn] or [wording.format(target) for wording in WORDINGS]
    records: dict[str, dict[str, Any]] = {
        SPEC: spec.to_dict(),
        OsrcirRecord.kind: {"description": caption or target, "thoughts": edit, "reflections": edit, "target": target},
        CotmrRecord.kind: {"target": target, "existent": wanted, "nonexistent": list(spec.remove)},
        SoftRecord.kind: {
            "prescriptive": ", ".join(wanted) or target,
            "proscriptive": ", ".join(spec.remove) or caption or edit,
        },
        SdrRecord.kind: {"description": target},
        StitchRecord.kind: {"descriptions": descriptions[:DESCRIPTIONS]},
    }
    if caption is not None:
        captions = [before for before, _ in drawn] or [wording.format(caption) for wording in WORDINGS]
        records[CirevlRecord.kind] = {"caption": caption, "description": target}
        records[LdreRecord.kind] = {"captions": captions, "edited": descriptions}
    return records


def drawn_for(kinds: Collection[str]) -> int:
    """How many captions drawn by chance the records of these kinds take."""
    if LdreRecord.kind in kinds:
        return CAPTIONS
    return DESCRIPTIONS if StitchRecord.kind in kinds else 0
