"""Many queries into one record file: several at a time, resumable, every one ending in a record or a named failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import FAILURE, HAND, SPEC, Maker, Record, RecordAnswer, RecordFile, RecordIndex
from tapr.factorize.usage import NOTHING_USED, TokenUsage
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference

AskSpec = Callable[[Reference, str], Awaitable[Factorization]]
OpenReference = Callable[[Path], Reference]
Write = Callable[[Record], None]


Ask = Callable[[Reference, str], Awaitable[RecordAnswer]]


@dataclass(frozen=True)
class BatchReport:
    """The state of a batch; the counts sum to `done`."""

    total: int
    kept: int = 0  # already in the file
    reused: int = 0  # the same picture, edit and maker under another id
    made: int = 0
    fallbacks: int = 0  # flagged specs that somebody asked for; the next run tries them again
    failures: tuple[tuple[str, str], ...] = ()  # query id, reason
    usage: TokenUsage = NOTHING_USED
    notes: tuple[str, ...] = ()  # each different note of the records once

    @property
    def done(self) -> int:
        return self.kept + self.reused + self.made + self.fallbacks + len(self.failures)


@runtime_checkable
class Concurrent(Protocol):
    """A factorizer that can be asked many things at a time."""

    def session(self) -> AbstractAsyncContextManager[AskSpec]: ...


OnProgress = Callable[[BatchReport], None]


def factorize_batch(
    queries: Sequence[BatchQuery],
    factorizer: Factorizer,
    maker: Maker,
    out: str | Path,
    open_reference: OpenReference,
    *,
    concurrency: int = 1,
    on_progress: OnProgress | None = None,
) -> BatchReport:
    """Append a spec per query to `out`; what is there already is kept, what failed before is tried again.

    Wrong settings and a server that nobody answers at stop the batch; what was made is in the file.
    """
    at_once = concurrency if isinstance(factorizer, Concurrent) else 1
    session = _spec_session(factorizer)
    return record_batch(
        queries, SPEC, session, maker, out, open_reference, concurrency=at_once, on_progress=on_progress
    )


def record_batch(
    queries: Sequence[BatchQuery],
    kind: str,
    session: AbstractAsyncContextManager[Ask],
    maker: Maker,
    out: str | Path,
    open_reference: OpenReference,
    *,
    concurrency: int = 1,
    on_progress: OnProgress | None = None,
) -> BatchReport:
    """Do the same for records of any kind."""
    file = RecordFile(out)
    with file.writer() as writer:
        index, _ = file.index(kind)
        report = BatchReport(len(queries), notes=(writer.mended,) if writer.mended else ())
        batch = _Batch(maker, index, writer.write, open_reference, on_progress or (lambda report: None), report)
        run_anywhere(batch.run(queries, session, concurrency))
    return batch.report


def is_answered(index: RecordIndex, query: BatchQuery, maker: Maker) -> bool:
    """Say whether the newest record of this very question is by this maker, or was put there by hand."""
    record = _newest_answer(index, query)
    if record is None or record.maker == HAND:
        return record is not None
    return record.maker == maker and record.image is not None and record.edit is not None


def _newest_answer(index: RecordIndex, query: BatchQuery) -> Record | None:
    """Return the newest record under the query's id of its edit, picture and set, as far as the record names them."""
    from tapr.images.decode import read_bytes, sha256_of

    known = index.by_id(query.id)
    image = sha256_of(read_bytes(query.reference)) if any(record.image for record in known) else None
    return next((record for record in known if record.differs_from(query.question(image)) is None), None)


@dataclass
class _Batch:
    maker: Maker
    index: RecordIndex
    write: Write
    open_reference: OpenReference
    on_progress: OnProgress
    report: BatchReport

    async def run(
        self, queries: Sequence[BatchQuery], session: AbstractAsyncContextManager[Ask], concurrency: int
    ) -> None:
        waiting = iter(queries)  # shared by the workers, so that each query is taken once
        async with session as ask:
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
            if await asyncio.to_thread(is_answered, self.index, query, self.maker):
                self.report = replace(self.report, kept=self.report.kept + 1)
                return
            reference = await asyncio.to_thread(self.open_reference, query.reference)
            image = reference.sha256
            twin = self.index.get(image, query.edit, self.maker)
            if twin is not None:
                self._keep(replace(twin, id=query.id, dataset=query.dataset, split=query.split))
                self.report = replace(self.report, reused=self.report.reused + 1)
                return
            answer = await ask(reference, query.edit)
        except (ServerRefused, ServerUnreachable):
            raise
        except (BadInput, NoAnswer) as error:
            self._fail(query, image, error)
        else:
            self._note(answer, query, image)

    def _note(self, answer: RecordAnswer, query: BatchQuery, image: str) -> None:
        # a fallback is kept under its own maker, so that the next run does not take it for an answer
        maker = Maker(answer.instead) if answer.instead else self.maker
        record = Record(answer.payload, self.index.kind, query.id, image, query.edit, maker)
        self._keep(
            replace(record, notes=answer.notes, details=answer.details, dataset=query.dataset, split=query.split)
        )
        report = replace(self.report, usage=self.report.usage + TokenUsage.from_details(answer.details))
        if answer.instead:
            self.report = replace(report, fallbacks=report.fallbacks + 1)
        else:
            notes = (*report.notes, *(note for note in answer.notes if note not in report.notes))
            self.report = replace(report, made=report.made + 1, notes=notes)

    def _fail(self, query: BatchQuery, image: str | None, error: BadInput | NoAnswer) -> None:
        usage = TokenUsage.from_details(error.details) if isinstance(error, NoAnswer) else NOTHING_USED
        payload = {"error": str(error), "kind": self.index.kind, "usage": usage.as_dict()}
        record = Record(payload, FAILURE, query.id, image, query.edit, self.maker)
        self.write(replace(record, dataset=query.dataset, split=query.split))
        report = self.report
        failures = (*report.failures, (query.id, str(error)))
        self.report = replace(report, failures=failures, usage=report.usage + usage)

    def _keep(self, record: Record) -> None:
        self.write(record)
        self.index.add(record)


@asynccontextmanager
async def _spec_session(factorizer: Factorizer) -> AsyncIterator[Ask]:
    """Turn any factorizer into one that answers with the payload of a record."""
    if isinstance(factorizer, Concurrent):
        async with factorizer.session() as ask:

            async def ask_it(reference: Reference, edit: str) -> RecordAnswer:
                return _answer(await ask(reference, edit))

            yield ask_it
        return

    async def ask_in_thread(reference: Reference, edit: str) -> RecordAnswer:
        return _answer(await asyncio.to_thread(factorizer.factorize, reference, edit))

    yield ask_in_thread


def _answer(factorization: Factorization) -> RecordAnswer:
    instead = factorization.factorizer if factorization.details.get("fallback") is True else ""
    return RecordAnswer(factorization.spec.to_dict(), factorization.notes, factorization.details, instead)
