"""Every method's record from one specification and one caption, so that all of them know the same.

Where a language model is missing (EmojiCIR's rules, the grounded factorizer) this puts the methods on equal terms:
the target sentence is every method's description, Add and Preserve are what must be there, Remove what must not.
"""

from __future__ import annotations

from typing import Any

from tapr.factorize.records import SPEC
from tapr.methods.cirevl import CirevlRecord
from tapr.methods.cotmr import CotmrRecord
from tapr.methods.ldre import LdreRecord
from tapr.methods.osrcir import OsrcirRecord
from tapr.methods.sdr_cir import SdrRecord
from tapr.methods.soft import SoftRecord
from tapr.methods.stitch import StitchRecord
from tapr.spec import EditSpec

# ways to say the same: what sampling gives a method that asks for several captions. STiTch has five; LDRE's fifteen
# would differ in wording alone, so it has these five too.
WORDINGS = ("{}", "a picture of {}", "an illustration of {}", "this shows {}", "{} on a plain background")


def derive(spec: EditSpec, edit: str, caption: str | None) -> dict[str, dict[str, Any]]:
    """kind -> payload. Without a caption of the reference the methods that need one have no record."""
    target, wanted = spec.target, [*spec.add, *spec.preserve]
    records: dict[str, dict[str, Any]] = {
        SPEC: spec.to_dict(),
        OsrcirRecord.kind: {"description": caption or target, "thoughts": edit, "reflections": edit, "target": target},
        CotmrRecord.kind: {"target": target, "existent": wanted, "nonexistent": list(spec.remove)},
        SoftRecord.kind: {
            "prescriptive": ", ".join(wanted) or target,
            "proscriptive": ", ".join(spec.remove) or caption or edit,
        },
        SdrRecord.kind: {"description": target},
        StitchRecord.kind: {"descriptions": [wording.format(target) for wording in WORDINGS]},
    }
    if caption is not None:
        records[CirevlRecord.kind] = {"caption": caption, "description": target}
        records[LdreRecord.kind] = {
            "captions": [wording.format(caption) for wording in WORDINGS],
            "edited": [wording.format(target) for wording in WORDINGS],
        }
    return records
