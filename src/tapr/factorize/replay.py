"""Factorizers that read records: only from a file, or before another factorizer is asked."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.failures import BadRecords
from tapr.factorize.records import Maker, Record, RecordFile
from tapr.factorize.row import FactorizerRow, FactorizerSetting
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec


class RecordsFactorizer:
    """Replays specs from a record file, by picture and edit: no model, no network."""

    name = "records"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise BadRecords(f"there is no record file {str(path)!r}: make one with tapr factorize --batch ... --out")
        self._index, self.torn = RecordFile(self.path).index()

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        record = self._index.get(reference.sha256, edit)
        if record is None:
            what = f"picture {reference.sha256[:12]}... with edit {edit!r}: add a record, or choose another factorizer"
            raise BadRecords(f"{self.path} has no spec for {what}", code="no_record")
        return _replayed(record, self.path, () if self.torn is None else (self.torn,))


class CachingFactorizer:
    """Asks the other factorizer only what the file does not know yet, and writes down what it answers."""

    def __init__(self, inner: Factorizer, path: str | Path, maker: Maker) -> None:
        self._inner = inner
        self._file = RecordFile(path)
        self._maker = maker
        self._index, _ = self._file.index()

    @property
    def name(self) -> str:
        return self._inner.name

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        record = self._index.get(reference.sha256, edit, self._maker)
        if record is not None:
            return _replayed(record, self._file.path)
        answer = self._inner.factorize(reference, edit)
        if answer.factorizer == self._inner.name:  # a fallback is no answer worth keeping
            record = spec_record(answer, reference.sha256, edit, self._maker)
            self._file.append(record)
            self._index.add(record)
        return answer


def _replayed(record: Record, path: Path, more_notes: tuple[str, ...] = ()) -> Factorization:
    try:
        spec = EditSpec.from_dict(record.payload)
    except BadInput as error:
        raise BadRecords(f"{path}: the spec of query {record.id or record.edit!r} is not valid: {error}") from None
    details = {**record.details, "record": {"file": str(path), "id": record.id}}
    return Factorization(spec, f"records:{record.maker.model}", (*record.notes, *more_notes), details)


def spec_record(answer: Factorization, image_sha256: str, edit: str, maker: Maker) -> Record:
    payload = answer.spec.to_dict()
    return Record(payload, image=image_sha256, edit=edit, maker=maker, notes=answer.notes, details=answer.details)


def _load(setting: FactorizerSetting) -> RecordsFactorizer:
    if setting.records is None:
        raise BadInput("the records factorizer needs a record file: give it with --records FILE", code="missing_option")
    return RecordsFactorizer(setting.records)


ROWS = (FactorizerRow("records", "Replays specs from a record file.", _load, order=50, remembers=False),)
