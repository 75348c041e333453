"""Factorizers that read records: only from a file, or before another factorizer is asked."""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.records import Maker, Question, Record, RecordFile, record_key
from tapr.factorize.row import FactorizerRow, Setting
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec


class RecordsFactorizer:
    """Replays specs from a record file: no model, no network. With a maker, only that maker's records count."""

    name = "records"

    def __init__(self, path: str | Path, maker: Maker | None = None) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise BadInput(f"there is no record file {str(path)!r}: make one with tapr factorize --batch ... --out")
        self._index, self.torn = RecordFile(self.path).index()
        self._maker = maker

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        return self.lookup(reference.sha256, edit)

    def lookup(self, image_sha256: str, edit: str, query_id: str | None = None) -> Factorization:
        """By picture and edit; else, where the caller knows it, by the query's id."""
        if self._maker is not None:
            record = self._index.by_key(record_key(image_sha256, edit, self._maker))
        else:
            record = self._index.by_pair(image_sha256, edit)
        if record is None and query_id is not None:
            record = self._by_id(query_id, image_sha256, edit)
        if record is None:
            asked = (
                f"query {query_id!r}" if query_id is not None else f"picture {image_sha256[:12]}... with edit {edit!r}"
            )
            raise BadInput(f"{self.path} has no spec for {asked}: add a record, or choose another factorizer")
        return self._replayed(record)

    def _by_id(self, query_id: str, image_sha256: str, edit: str) -> Record | None:
        """The newest of the query's records that answers this question; those of other questions are told apart."""
        differing = None
        for record in self._index.by_id(query_id):
            differs = record.differs_from(Question(edit, image_sha256))
            if differs is None and self._maker not in (None, record.maker):
                differs = "model or prompt"
            if differs is None:
                return record
            differing = differing or differs
        if differing:
            raise BadInput(f"{self.path} has a spec for query {query_id!r}, but for another {differing}")
        return None

    def _replayed(self, record: Record) -> Factorization:
        notes = record.notes if self.torn is None else (*record.notes, self.torn)
        return replayed(record, self.path, notes)


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
        record = self._index.by_key(record_key(reference.sha256, edit, self._maker))
        if record is not None:
            return replayed(record, self._file.path, record.notes)
        answer = self._inner.factorize(reference, edit)
        if answer.factorizer == self._inner.name:  # a fallback is no answer worth keeping
            record = spec_record(answer, reference.sha256, edit, self._maker)
            self._file.append(record)
            self._index.add(record)
        return answer


def replayed(record: Record, path: Path, notes: tuple[str, ...]) -> Factorization:
    try:
        spec = EditSpec.from_dict(record.payload)
    except BadInput as error:
        raise BadInput(f"{path}: the spec of query {record.id or record.edit!r} is not valid: {error}") from None
    details = {**record.details, "record": {"file": str(path), "id": record.id, "key": record.key}}
    return Factorization(spec, f"records:{record.maker.model}", notes, details)


def spec_record(
    answer: Factorization, image_sha256: str, edit: str, maker: Maker, query_id: str | None = None
) -> Record:
    return Record(
        answer.spec.to_dict(),
        id=query_id,
        image=image_sha256,
        edit=edit,
        maker=maker,
        notes=answer.notes,
        details=answer.details,
    )


def _replaying(setting: Setting) -> RecordsFactorizer:
    if setting.records is None:
        raise BadInput("the records factorizer needs a record file: give it with --records FILE")
    return RecordsFactorizer(setting.records)


ROWS = (FactorizerRow("records", "Replays specs from a record file.", _replaying, order=50, remembers=False),)
