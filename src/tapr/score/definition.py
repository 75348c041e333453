"""The definition of the score, in NumPy and float64. Every kernel is tested against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.types import Float64

# products up to this size run on one BLAS thread: otherwise the last bits would depend on the number of threads, and
# idle BLAS threads would keep processors busy
_ONE_THREAD = 2**18


def products(probes: NDArray[Any], locals_: NDArray[Any]) -> Float64:
    """Dot products: (n, d), (..., M, d) -> (..., n, M). Their bits do not depend on other pictures."""
    wide = np.asarray(probes, np.float64)
    turned = np.asarray(locals_, np.float64).swapaxes(-1, -2)
    step = max(1, _ONE_THREAD // max(1, turned.shape[-1] * turned.shape[-2]))
    lots = [wide[start : start + step] @ turned for start in range(0, max(1, len(wide)), step)]
    return np.concatenate(lots, axis=-2)


def soft_match(probes: NDArray[Any], locals_: NDArray[Any], tau: float) -> tuple[Float64, Float64]:
    """Probes (n, d), locals (..., M, d) -> dot products s and their softmax weights p, both (..., n, M)."""
    s = products(probes, locals_)
    with np.errstate(over="ignore"):  # positions far below the best have weight 0
        p = np.exp((s - s.max(axis=-1, keepdims=True)) / tau)
    return s, p / p.sum(axis=-1, keepdims=True)


def probe_scores(probes: NDArray[Any], locals_: NDArray[Any], tau: float) -> Float64:
    """l_tau(u_i; V) for every probe: (n, d), (..., M, d) -> (..., n)."""
    s, p = soft_match(probes, locals_, tau)
    return np.asarray((p * s).sum(axis=-1))


def late_interaction(probes: NDArray[Any], locals_: NDArray[Any], tau: float = 0.02) -> Float64:
    """L(U, V), the mean over probes: (n, d), (..., M, d) -> (...); a 0-d array for one picture."""
    if len(probes) == 0:
        raise ValueError("late_interaction needs at least one probe: an empty factor is inactive")
    return np.asarray(probe_scores(probes, locals_, tau).mean(axis=-1))


def score(query: CompiledQuery, global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> Float64:
    """S for N pictures: (N, d), (N, M, d) -> (N,)."""
    whole = _whole_scores(query, global_vectors).sum(axis=-1)
    return np.asarray(whole + _local_scores(query, local_vectors).sum(axis=-1))


def term_scores(query: CompiledQuery, global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> Float64:
    """What each of the query's terms contributes to S: (N, d), (N, M, d) -> (N, terms). Rows sum to the score."""
    scores = {"global": _whole_scores(query, global_vectors), "local": _local_scores(query, local_vectors)}
    columns = [scores[term.reads][..., term.start : term.stop].sum(axis=-1) for term in query.terms]
    return np.stack(columns, axis=-1) if columns else np.zeros((len(global_vectors), 0))


def heat_maps(query: CompiledQuery, local_vectors: NDArray[Any]) -> Float64:
    """Heat maps of one picture: (M, d) -> (terms, M), the w_i p_ij s_ij summed over each term's probes. Row sums equal
    `term_scores`. Terms on the global vector have no map (zeros).
    """
    s, p = soft_match(query.probes, local_vectors, query.tau)  # (n, M)
    weighted = query.weights.astype(np.float64)[:, None] * p * s
    rows = [
        weighted[term.start : term.stop].sum(axis=0) if term.reads == "local" else np.zeros(weighted.shape[1])
        for term in query.terms
    ]
    return np.stack(rows) if rows else np.zeros((0, weighted.shape[1]))


def _whole_scores(query: CompiledQuery, global_vectors: NDArray[Any]) -> Float64:
    """(N, d) -> (N, g), weighted."""
    dots = products(query.global_probes, np.asarray(global_vectors)[..., None, :])[..., 0]
    return np.asarray(dots * query.global_weights.astype(np.float64))


def _local_scores(query: CompiledQuery, local_vectors: NDArray[Any]) -> Float64:
    """(N, M, d) -> (N, n), weighted."""
    return probe_scores(query.probes, local_vectors, query.tau) * query.weights.astype(np.float64)
