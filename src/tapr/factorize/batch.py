"""Many queries into one record file: several at a time, resumable, every one ending in a spec or a named failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from tapr.errors import BadInput
from tapr.factorize.base import Factorization, Factorizer, Reference
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoSpec, ServerRefused, ServerUnreachable
from tapr.factorize.records import FAILURE, HAND, Maker, Record, RecordFile, RecordIndex, record_key
from tapr.factorize.replay import spec_record
from tapr.factorize.usage import NOTHING_USED, Usage
from tapr.lines import lines_of

Ask = Callable[[Reference, str], Awaitable[Factorization]]
OpenReference = Callable[[Path], Reference]
Write = Callable[[Record], None]


@dataclass(frozen=True)
class BatchQuery:
    """One line of a queries file: {"id": ..., "reference": path, "edit": ...}."""

    id: str
    reference: Path
    edit: str


@dataclass(frozen=True)
class BatchReport:
    """Where a batch stands; the counts sum to `done`."""

    total: int
    kept: int = 0  # already in the file
    reused: int = 0  # the same picture, edit and maker under another id
    made: int = 0
    fallbacks: int = 0  # flagged specs that somebody asked for; the next run tries them again
    failures: tuple[tuple[str, str], ...] = ()  # query id, reason
    usage: Usage = NOTHING_USED
    notes: tuple[str, ...] = ()  # each different note of the specs once

    @property
    def done(self) -> int:
        return self.kept + self.reused + self.made + self.fallbacks + len(self.failures)


@runtime_checkable
class Concurrent(Protocol):
    """A factorizer that can be asked many things at a time."""

    def session(self) -> AbstractAsyncContextManager[Ask]: ...


def read_queries(path: str | Path) -> list[BatchQuery]:
    """Pictures' paths are relative to the file's own folder; ids must differ."""
    path = Path(path)
    try:
        lines = lines_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"cannot read the queries {str(path)!r}: {reason}") from None
    queries: dict[str, BatchQuery] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query = _query(line, path.parent)
        except BadInput as error:
            raise BadInput(f"{path}, line {number}: {error}") from None
        if query.id in queries:
            raise BadInput(f"{path}, line {number}: the id {query.id!r} stands for another query already")
        queries[query.id] = query
    if not queries:
        raise BadInput(f"{path} holds no queries")
    return list(queries.values())


def factorize_batch(
    queries: Sequence[BatchQuery],
    factorizer: Factorizer,
    maker: Maker,
    out: str | Path,
    open_reference: OpenReference,
    *,
    concurrency: int = 1,
    on_progress: Callable[[BatchReport], None] | None = None,
) -> BatchReport:
    """Append one record per query to `out`; existing records are kept, and what failed before is tried again.

    Wrong settings and a server that nobody answers at stop the batch; what was made is in the file.
    """
    file = RecordFile(out)
    with file.writer() as writer:
        index, _ = file.index()
        report = BatchReport(len(queries), notes=(writer.mended,) if writer.mended else ())
        batch = _Batch(maker, index, writer.write, open_reference, on_progress or (lambda report: None), report)
        run_anywhere(batch.run(queries, factorizer, concurrency if isinstance(factorizer, Concurrent) else 1))
    return batch.report


def newest_answer(index: RecordIndex, query: BatchQuery) -> Record | None:
    """The newest record under the query's id that is of its edit and picture, as far as the record names them."""
    from tapr.images import read_bytes, sha256_of

    known = index.by_id(query.id)
    image = sha256_of(read_bytes(query.reference)) if any(record.image for record in known) else None
    return next((record for record in known if record.differs_from(query.edit, image) is None), None)


@dataclass
class _Batch:
    maker: Maker
    index: RecordIndex
    write: Write
    open_reference: OpenReference
    on_progress: Callable[[BatchReport], None]
    report: BatchReport

    async def run(self, queries: Sequence[BatchQuery], factorizer: Factorizer, concurrency: int) -> None:
        waiting = iter(queries)  # shared by the workers, so that each query is taken once
        async with _session(factorizer) as ask:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(concurrency, len(queries))):
                        group.create_task(self._work(waiting, ask))
            except ExceptionGroup as stopped:  # the others were cancelled; the first one says why
                raise stopped.exceptions[0] from None

    async def _work(self, waiting: Iterator[BatchQuery], ask: Ask) -> None:
        for query in waiting:
            await self._one(query, ask)
            self.on_progress(self.report)

    async def _one(self, query: BatchQuery, ask: Ask) -> None:
        image = None
        try:
            if await asyncio.to_thread(self._is_answered, query):
                self.report = replace(self.report, kept=self.report.kept + 1)
                return
            reference = await asyncio.to_thread(self.open_reference, query.reference)
            image = reference.sha256
            twin = self.index.by_key(record_key(image, query.edit, self.maker))
            if twin is not None:
                self._keep(replace(twin, id=query.id))
                self.report = replace(self.report, reused=self.report.reused + 1)
                return
            answer = await ask(reference, query.edit)
        except (ServerRefused, ServerUnreachable):
            raise
        except (BadInput, NoSpec) as error:
            self._fail(query, image, error)
        else:
            self._note(answer, query, image)

    def _is_answered(self, query: BatchQuery) -> bool:
        """Whether the newest record of exactly this question is by this maker, or was written by hand."""
        record = newest_answer(self.index, query)
        if record is None or record.maker == HAND:
            return record is not None
        return record.maker == self.maker and record.key is not None

    def _note(self, answer: Factorization, query: BatchQuery, image: str) -> None:
        # a fallback is kept under its own maker, so that the next run does not take it for an answer
        fallback = answer.details.get("fallback") is True
        maker = Maker(answer.factorizer) if fallback else self.maker
        self._keep(spec_record(answer, image, query.edit, maker, query.id))
        report = replace(self.report, usage=self.report.usage + Usage.from_details(answer.details))
        if fallback:
            self.report = replace(report, fallbacks=report.fallbacks + 1)
        else:
            notes = (*report.notes, *(note for note in answer.notes if note not in report.notes))
            self.report = replace(report, made=report.made + 1, notes=notes)

    def _fail(self, query: BatchQuery, image: str | None, error: BadInput | NoSpec) -> None:
        usage = getattr(error, "usage", NOTHING_USED)
        payload = {"error": str(error), "usage": usage.as_dict()}
        self.write(Record(payload, FAILURE, query.id, image, query.edit, self.maker))
        report = self.report
        failures = (*report.failures, (query.id, str(error)))
        self.report = replace(report, failures=failures, usage=report.usage + usage)

    def _keep(self, record: Record) -> None:
        self.write(record)
        self.index.add(record)


@asynccontextmanager
async def _session(factorizer: Factorizer) -> AsyncIterator[Ask]:
    if isinstance(factorizer, Concurrent):
        async with factorizer.session() as ask:
            yield ask
        return

    async def ask_in_thread(reference: Reference, edit: str) -> Factorization:
        return await asyncio.to_thread(factorizer.factorize, reference, edit)

    yield ask_in_thread


def _query(line: str, folder: Path) -> BatchQuery:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise BadInput(f"not valid JSON ({error})") from None
    names = ("id", "reference", "edit")
    if not isinstance(value, dict):
        raise BadInput(f"a query is an object with {', '.join(names)}")
    if isinstance(value.get("id"), int):
        value["id"] = str(value["id"])
    for name in names:
        # a benchmark may hold a blank edit: that query is no reason to refuse the others
        if not isinstance(value.get(name), str) or not (value[name].strip() or name == "edit"):
            raise BadInput(f"the query has no {name}: give it as text")
    return BatchQuery(value["id"], folder / value["reference"], value["edit"])
