"""Records: one JSON line for each query that was prepared, so that it can be replayed without what prepared it.

A record is found by its query's id, by picture, edit and maker, or by picture and edit alone. Files only grow: where
several records answer, the last one in the file wins, so a correction is one more line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tapr.encoders.base import Encoder
from tapr.errors import BadInput, TaprError
from tapr.factorize.failures import BadRecords
from tapr.utils.json_text import parse_json

VERSION = 2
SPEC, FAILURE = "spec", "failure"
_TORN = "the last line of {} was cut off while it was written and is left out"


@dataclass(frozen=True)
class Maker:
    """The maker of a record: with the picture and the edit, all that decides its payload."""

    model: str
    prompt: str = ""  # version of the prompt file
    prompt_sha256: str = ""  # of all that is asked, the answer's schema too


HAND = Maker("hand")


@dataclass(frozen=True)
class RecordAnswer:
    """The payload of a record, before it is known which query it is for."""

    payload: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    instead: str = ""  # the name of a fallback that the user asked for, where it answered


@dataclass(frozen=True)
class RecordedQuestion:
    """The question that a record answers; None or "" stands for what is not known."""

    edit: str
    image: str | None = None  # sha256 of the reference picture's bytes
    dataset: str = ""  # benchmarks number their queries the same way, and so do the splits of one
    split: str = ""


def seen_with(model: str, encoder: Encoder) -> str:
    """Name a model that looks at pictures with an encoder: another card is another maker."""
    card = json.dumps(encoder.card.to_dict(), sort_keys=True).encode()
    return f"{model}@{encoder.card.name}:{hashlib.sha256(card).hexdigest()[:12]}"


@dataclass(frozen=True)
class Record:
    """A record. The payload of kind "spec" is an EditSpec's dictionary; other methods name kinds of their own."""

    payload: Mapping[str, Any]
    kind: str = SPEC
    id: str | None = None  # of the query, unique within its set
    image: str | None = None  # sha256 of the reference picture's bytes
    edit: str | None = None
    maker: Maker = HAND
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""  # of the query; "" when it belongs to none
    split: str = ""

    def differs_from(self, question: RecordedQuestion) -> str | None:
        """Return what this record says of its question that is not so of another; what is not said cannot differ."""
        if self.dataset and question.dataset and self.dataset != question.dataset:
            return "dataset"
        if self.split and question.split and self.split != question.split:
            return "split"
        if self.image is not None and question.image is not None and self.image.lower() != question.image.lower():
            return "picture"
        if self.edit is not None and plain(self.edit) != plain(question.edit):
            return "edit"
        return None

    def to_line(self) -> str:
        values = {"version": VERSION, "kind": self.kind, "dataset": self.dataset, "split": self.split, "id": self.id}
        values |= {"image": self.image, "edit": self.edit, **asdict(self.maker), "payload": self.payload}
        values |= {"notes": list(self.notes), "details": self.details}
        # what is empty is left out; the payload never is
        kept = {name: value for name, value in values.items() if name == "payload" or value not in (None, "", [], {})}
        return json.dumps(kept, ensure_ascii=False) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """Read a line. Unknown names are refused, so that a slip in a hand-written line is not read as nothing."""
        try:
            value = parse_json(line)
        except ValueError as error:
            raise BadRecords(f"not valid JSON ({error})") from None
        if not isinstance(value, dict):
            raise BadRecords(f"a record must be a JSON object, not {type(value).__name__}")
        if value.get("version", VERSION) != VERSION:
            raise BadRecords(f"record version {value['version']!r}, this tapr reads version {VERSION}: make it again")
        unknown = sorted(set(value) - _NAMES)
        if unknown:
            raise BadRecords(f"unknown key {unknown[0]!r}: a record has {', '.join(sorted(_NAMES))}")
        for name in _TEXTS:
            if not isinstance(value.get(name, ""), str):
                raise BadRecords(f"{name} must be text, not {value[name]!r}")
        if not isinstance(value.get("payload"), dict):
            raise BadRecords("payload must be a JSON object: for a spec, one with a target")
        if not isinstance(value.get("notes", []), list) or not isinstance(value.get("details", {}), dict):
            raise BadRecords("notes must be a list and details an object")
        record = cls(
            payload=value["payload"],
            kind=value.get("kind", SPEC),
            id=value.get("id"),
            image=value.get("image"),
            edit=value.get("edit"),
            maker=Maker(value.get("model", HAND.model), *(value.get(name, "") for name in _MAKER_NAMES[1:])),
            notes=tuple(str(note) for note in value.get("notes", [])),
            details=value.get("details", {}),
            dataset=value.get("dataset", ""),
            split=value.get("split", ""),
        )
        if record.id is None and (record.image is None or record.edit is None):
            raise BadRecords("nothing to find the record by: give it an id, or an image (sha256) and an edit")
        return record


_MAKER_NAMES = ("model", "prompt", "prompt_sha256")
_TEXTS = ("kind", "dataset", "split", "id", "image", "edit", *_MAKER_NAMES)
_NAMES = {"version", "payload", "notes", "details", *_TEXTS}


class RecordIndex:
    """The records of one kind, by each of the three ways to ask; the last one added wins."""

    def __init__(self, kind: str = SPEC) -> None:
        self.kind = kind
        self._by_id: dict[str, list[Record]] = {}
        self._by_question: dict[tuple[str, str, Maker | None], Record] = {}

    def add(self, record: Record) -> None:
        if record.kind != self.kind:
            return
        if record.id is not None:
            self._by_id.setdefault(record.id, []).append(record)
        if record.image is not None and record.edit is not None:
            for maker in (record.maker, None):
                self._by_question[record.image.lower(), plain(record.edit), maker] = record

    def by_id(self, query_id: str) -> list[Record]:
        """Return the newest first. Two sets of queries may use the same ids, so each must be asked what it answers."""
        return self._by_id.get(query_id, [])[::-1]

    def get(self, image_sha256: str, edit: str, maker: Maker | None = None) -> Record | None:
        """Return the newest record of picture and edit, by this maker or by any."""
        return self._by_question.get((image_sha256.lower(), plain(edit), maker))


class RecordFile:
    """A JSONL file of records. One process writes at a time; any number may read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> tuple[list[Record], str | None]:
        """Return all records in file order, and a sentence if an interrupted write left half a line."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise BadRecords(f"cannot read the records {str(self.path)!r}: {error.strerror}") from None
        lines = data.split(b"\n")
        records = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                records.append(Record.from_line(line))
            except BadInput as error:
                if number == len(lines) and not _is_json(line):
                    return records, _TORN.format(self.path)
                raise BadRecords(f"{self.path}, line {number}: {error}") from None
        return records, None

    def index(self, kind: str = SPEC) -> tuple[RecordIndex, str | None]:
        """Index the records of a kind; empty when there is no file yet."""
        index = RecordIndex(kind)
        records, torn = self.read() if self.path.exists() else ([], None)
        for record in records:
            index.add(record)
        return index, torn

    def append(self, record: Record) -> None:
        """Add one record, waiting while another process writes."""
        with self.writer(wait=60) as writer:
            writer.write(record)

    @contextmanager
    def writer(self, wait: float = 0) -> Iterator[RecordWriter]:
        """Hold the file to add to it; a process that finds it held waits so many seconds and is then refused."""
        with ExitStack() as held:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(FileLock(f"{self.path}.lock").acquire(timeout=wait))
                file = held.enter_context(self.path.open("ab", buffering=0))
            except Timeout:
                what = f"another process is writing {self.path}: wait for it, or name another file"
                raise BadRecords(what, code="writer_busy") from None
            except OSError as error:
                what = f"cannot write the records {str(self.path)!r}: {error.strerror}"
                raise BadRecords(what, code="not_written") from None
            yield RecordWriter(self.path, file, self._mend_tail())

    def _mend_tail(self) -> str | None:
        """End or cut the last line: under the lock, a killed writer left it, or a hand that forgot Return."""
        with self.path.open("r+b") as file:
            if file.seek(0, 2) == 0:
                return None
            file.seek(-1, 2)
            if file.read() == b"\n":
                return None
            file.seek(0)
            data = file.read()
            tail = data.rpartition(b"\n")[2]
            if _is_json(tail):
                file.write(b"\n")
                return None
            file.truncate(len(data) - len(tail))
            return _TORN.format(self.path)


@dataclass(frozen=True)
class RecordWriter:
    path: Path
    file: RawIOBase
    mended: str | None  # a sentence when half a line was cut away first

    def write(self, record: Record) -> None:
        """Write a whole line, with the system before this returns: a kill may lose this record, none before it."""
        line = record.to_line().encode()
        try:
            whole = self.file.write(line) == len(line)
        except OSError:
            whole = False
        if not whole:
            raise TaprError(f"could not write a record to {self.path}: is the disk full?", code="not_written")


def plain(text: str) -> str:
    """Collapse an edit's spaces, as edits are compared."""
    return " ".join(text.split())


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True
