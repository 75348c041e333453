"""Kinds of records: what each must hold, and which queries' records a method cannot use."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.methods.base import Asked, Method
from tapr.methods.cirevl import CirevlRecord
from tapr.methods.cotmr import CotmrRecord
from tapr.methods.ldre import LdreRecord
from tapr.methods.osrcir import OsrcirRecord
from tapr.methods.records import Payload, RecordSet
from tapr.methods.sdr_cir import SdrRecord
from tapr.methods.soft import SoftRecord
from tapr.methods.stitch import StitchRecord

SCHEMAS: dict[str, type[Payload]] = {  # of every kind but a spec, whose schema is EditSpec
    schema.kind: schema
    for schema in (CirevlRecord, OsrcirRecord, LdreRecord, SoftRecord, CotmrRecord, SdrRecord, StitchRecord)
}


def unusable(method: Method, queries: Sequence[Asked], records: RecordSet) -> dict[str, str]:
    """Query id -> why the method cannot use its records: missing, failed, wrong, or unlike all the others."""
    found: dict[str, str] = {}
    for query in queries:
        try:
            for kind in method.kinds:
                records.spec(query.id) if kind == SPEC else records.get(SCHEMAS[kind], query.id)
        except BadInput as error:
            found[query.id] = str(error)
    return found | method.misfits([query for query in queries if query.id not in found], records)
