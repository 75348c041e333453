"""The writer thread: operations that arrive together become one snapshot, and searches never wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from tapr.captions.description import has_captioner
from tapr.encoders.base import Evidence
from tapr.errors import TaprError
from tapr.explain.calibration import Scale
from tapr.index.captions import Describe, describer
from tapr.search.batching import Job, MicroBatcher
from tapr.server.engine import Engine
from tapr.store.quota import Quota
from tapr.store.write_operations import Operation, Outcome, WriteResult

MAX_OPERATIONS = 256  # operations per snapshot


_Job = Job[Operation, Outcome]


class Writer:
    """The thread that writes one gallery; each turn publishes one snapshot."""

    def __init__(
        self, engine: Engine, observe: Callable[[int], None] = lambda operations: None, quota: Quota | None = None
    ) -> None:
        self._engine, self._observe, self.quota = engine, observe, quota
        if has_captioner(engine.encoder.card):
            self._describer  # noqa: B018  loaded now, not during the first write
        self._writer = engine.gallery.writer(describe=self._describe)
        self._has_swept = False  # what a killed writer left is deleted with the first write
        self._micro_batcher = MicroBatcher[_Job]("tapr-write", MAX_OPERATIONS, self._apply)

    def apply_operations(self, operations: Sequence[Operation]) -> list[Outcome]:
        """When this returns, new searches see the result, and a kill does not undo it."""
        return self._micro_batcher.put(_Job(operations)).answers.result()

    def close(self) -> None:
        self._micro_batcher.close()

    def _apply(self, jobs: Sequence[_Job]) -> None:
        try:
            outcomes = iter(self._write([operation for job in jobs for operation in job.items]))
        except BaseException as error:
            for job in jobs:
                job.answers.set_exception(_own(error))
            return
        for job in jobs:
            job.answers.set_result([next(outcomes) for _ in job.items])

    def _write(self, operations: Sequence[Operation]) -> list[Outcome]:
        engine = self._engine
        # first the lock: while another process writes, searches see what it publishes
        with self._writer.writing("tapr serve", engine.settings.write_wait), engine.publishing():
            before = engine.gallery.manifest.snapshot
            if not self._has_swept:
                self._writer.sweep_uploads()
                self._has_swept = True
            outcomes = self._writer.apply_within(operations, self.quota)
            gallery = engine.gallery.reopen(engine.encoder)  # running searches keep their snapshot
            Scale.of(gallery)  # computed now, not during the next search
            engine.take_up(gallery)
        if gallery.manifest.snapshot != before:
            self._observe(sum(isinstance(outcome, WriteResult) for outcome in outcomes))
        return outcomes

    def _describe(self, evidence: Evidence) -> Sequence[str]:
        return self._describer(evidence)

    @cached_property
    def _describer(self) -> Describe:
        return describer(self._engine.encoder)


def _own(error: BaseException) -> BaseException:
    """A copy of the error per waiting thread: raising one object in several threads mixes their tracebacks."""
    return type(error)(str(error)) if isinstance(error, TaprError) else error
