"""The k best pictures of a query, and how they are searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.breakdown import Breakdown
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.kernels.bounds import radius, row_errors
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.top_scores import best_of
from tapr.search.plan import full_search, groups_of
from tapr.search.prune import Ledger, Pruning
from tapr.search.stages.job import Job
from tapr.search.sweep import check
from tapr.types import Float32

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TopK:
    """Best first, equal scores in gallery order. Fewer than k if the bank has fewer pictures."""

    positions: Positions  # (k,) in gallery order
    scores: Float32  # (k,)
    kernel: str
    exact: bool  # exact by fp16 vectors; False if the bank only has int8
    rescored: int | None = None  # pictures scored exactly after a cheaper scan of all
    radii: Float32 | None = None  # (k,) how far each score can be from its fp16 value; None if exact
    remarks: tuple[str, ...] = ()
    breakdown: Breakdown | None = None  # of the first hits, if the remote search sent it
    proof: Proof | None = None  # only with a first stage

    @property
    def notes(self) -> tuple[str, ...]:
        proof = () if self.proof is None else (self.proof.sentence,)
        return (*proof, *(() if self.radii is None else (_caution(self.radii),)), *self.remarks)

    def first(self, k: int) -> TopK:
        """The k best of a longer list."""
        radii = None if self.radii is None else self.radii[:k]
        breakdown = None if self.breakdown is None else self.breakdown.take(range(min(k, len(self.breakdown))))
        return replace(self, positions=self.positions[:k], scores=self.scores[:k], radii=radii, breakdown=breakdown)


@runtime_checkable
class RemoteBank(Protocol):
    """A bank that is searched on other machines, by the same kernels and with the same answers."""

    def top_k_many(
        self,
        queries: Sequence[CompiledQuery],
        k: int,
        prefilter: Budget | None = None,
        budget_ms: float | None = None,
    ) -> list[TopK]:
        """As tapr.search.match.match: by stages where it is asked for, or pays."""

    def histograms(self, targets: Float32) -> list[NDArray[np.int64]]:
        """(Q, d) -> one histogram of similarities per target, see search/reference_weight.py."""


def top_k(query: CompiledQuery, bank: Bank, k: int, kernel: Kernel | None = None) -> TopK:
    return top_k_many([query], bank, k, kernel)[0]


def top_k_many(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel | None = None) -> list[TopK]:
    """Return one TopK per query, in one sweep over the bank, without a first stage."""
    check_asked(queries, bank, k)
    if isinstance(bank, RemoteBank):
        return bank.top_k_many(queries, k)
    kernel, answers = kernel or choose_kernel(), []
    for group in groups_of(queries, len(bank)):
        job = Job.of(group, bank, kernel)
        stages = full_search(job, k)
        pruning = Pruning(stages, len(group), job.selection.count, k, shared=job.selection.shared)
        pruning.score_leaders()
        pruning.finish()
        for number, ledger in enumerate(pruning.ledgers):
            answer = answer_of(job, number, k, ledger)
            answers.append(replace(answer, rescored=len(ledger.rows) if stages.wide and answer.exact else None))
    return answers


def answer_of(job: Job, number: int, k: int, ledger: Ledger) -> TopK:
    """Return the best of the pictures that a search has scored for one of its queries."""
    selection, bank, level = job.selection, job.bank, job.kernel.levels(job.bank)[-1]
    if selection.places is None:
        order = np.argsort(ledger.rows)
        positions, scores = ledger.rows[order], ledger.scores[order]
    else:
        known = np.full(selection.count, np.nan, np.float32)
        known[ledger.rows] = ledger.scores
        positions = np.flatnonzero(~np.isnan(known[selection.places]))
        scores = known[selection.places[positions]]
    best = best_of(scores, k)
    best = best[scores[best] >= np.float32(ledger.given_floor)]
    positions, scores, radii = positions[best], scores[best], None
    if level.codes:
        errors = row_errors(bank, bank.rows[positions])
        radii = radius(job.queries[number], job.kernel, level, None, errors, job.locals_count)
    return TopK(positions, scores, job.kernel.name, not level.codes, radii=radii)


def check_asked(queries: Sequence[CompiledQuery], bank: Bank, k: int) -> None:
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)


def _caution(radii: Float32) -> str:
    return (
        f"approximate: the bank holds int8 only, and each score is within {float(radii.max(initial=0)):.4f} of its "
        "fp16 value (docs/matching.md has the measured agreement)"
    )
