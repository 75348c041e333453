"""Computes the score of every term of many queries over a gallery once. Every control is then a matrix product.

The score S is linear in its terms. Removing a factor, flipping a sign, swapping atoms or scaling theta only changes the
weights of rows that exist already. Only another tau or other evidence needs new rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.methods.base import QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.query.factors import BY_NAME, Factor, Reads
from tapr.query.scoring import PAPER, Scoring
from tapr.query.spec import ATOM_FACTORS, EditSpec
from tapr.score.compile import PARTS, WHOLE, CompiledQuery, Continuity, Part
from tapr.search.kernels.choose import gpu_in_use
from tapr.search.probe_means import BEST, ProbeMeans, means_kernel
from tapr.search.reference_weight import decide
from tapr.search.sweep import score_many
from tapr.types import Float32

GLOBAL = 0.0  # used like a tau for global evidence only: there l(u) = u . v0 at any tau
_BUDGET = 256 << 20  # bytes of terms per chunk; two chunks may be in memory
_NOTHING = np.float32(1e-18)  # negligible beside 1, but its square is still a normal number: subnormal numbers are slow
_SMALL = -float(np.log(_NOTHING))
_FARTHEST = 2.01  # largest distance between two dot products of unit vectors
_PROBES = 2048  # reference probes per sweep of the compiled kernel
_COLUMNS = 192  # probes per product: with a block of pictures they fit a core's cache


Key = tuple[Factor, str, Reads]  # identifies a term


@dataclass(frozen=True, eq=False)
class QueryTerms:
    """The scores of one query's terms over a gallery. Any weighting of the query can be computed from them."""

    spec: EditSpec
    keys: tuple[Key, ...]
    rows: dict[float, Float32]  # tau -> (terms, N); GLOBAL -> the same with global vectors only
    continuity: Continuity | None = None  # the reference weight; None: as in the paper

    def weights(self, parts: Sequence[Part]) -> NDArray[np.float64]:
        """The weights of these parts as a vector (terms,) to multiply `rows` with."""
        by_key = {(part.factor, part.text, part.reads): part.weight for part in parts}
        return np.array([by_key.get(key, 0.0) for key in self.keys])


class TermChunk:
    """The terms of a bounded number of queries. Computed when iterated, or when `begin` is called."""

    def __init__(self, places: tuple[int, ...], features: Features, terms: Iterator[tuple[int, QueryTerms]]) -> None:
        self.places, self.features, self._terms = places, features, terms
        self._first: Future[tuple[int, QueryTerms] | None] | None = None

    def begin(self, pool: Executor) -> None:
        """Start computing now, in a thread of this pool."""
        self._first = pool.submit(next, self._terms, None)

    def __iter__(self) -> Iterator[tuple[int, QueryTerms]]:
        """(index of the query, terms); can be iterated once."""
        first = None if self._first is None else self._first.result()
        if first is not None:
            yield first
        yield from self._terms


def query_terms(
    queries: Sequence[QueryLike],
    records: RecordSet,
    features: Features,
    taus: Sequence[float],
    scoring: Scoring = PAPER,
) -> Iterator[tuple[int, QueryTerms]]:
    """(index of the query, terms), a bounded number of queries at a time."""
    for chunk in term_chunks(queries, records, features, taus, scoring):
        yield from chunk


def term_chunks(
    queries: Sequence[QueryLike],
    records: RecordSet,
    features: Features,
    taus: Sequence[float],
    scoring: Scoring = PAPER,
    kept: Collection[float] | None = None,
) -> Iterator[TermChunk]:
    """Chunks of queries, sorted by reference, because a reference is matched once for all its queries in a chunk.

    `kept`: the taus whose probe matches stay with the chunk's features; None: none.
    """
    order = sorted(range(len(queries)), key=lambda place: queries[place].reference)
    specs = [records.spec(query.id) for query in queries]
    kernel = None if kept is None else means_kernel(features.bank)
    row = len(features.bank) * 4
    remembered = features.bank.card.locals_count if kernel is not None else 0  # rows per reference

    def made(chunk: Sequence[int]) -> TermChunk:
        known = None if kernel is None else ProbeMeans(features.bank, kernel, kept or ())
        own = features if known is None else replace(features, known=known)
        return TermChunk(tuple(chunk), own, _chunk_terms(chunk, queries, specs, own, taus, scoring))

    chunk: list[int] = []
    held, last = 0, ""
    for place in order:
        held += row * (len(taus) + 1) * (3 + len(keys_of(specs[place])))
        if queries[place].reference != last:
            held, last = held + row * remembered, queries[place].reference
        chunk.append(place)
        if held > _BUDGET:
            yield made(chunk)
            chunk, held, last = [], 0, ""
    if chunk:
        yield made(chunk)


def _chunk_terms(
    chunk: Sequence[int],
    queries: Sequence[QueryLike],
    specs: Sequence[EditSpec],
    features: Features,
    taus: Sequence[float],
    scoring: Scoring,
) -> Iterator[tuple[int, QueryTerms]]:
    phrases = sorted({atom for place in chunk for atom in _atoms(specs[place])})
    names = sorted({queries[place].reference for place in chunk})
    atom_row = {phrase: row for row, phrase in enumerate(phrases)}
    name_row = {name: row for row, name in enumerate(names)}
    evidence = features.references(names)
    said = sorted({sentence for place in chunk for sentence in specs[place].sentences})
    said_row = {sentence: row for row, sentence in enumerate(said)}
    vectors = features.texts(said)
    sentences = features.similarities(vectors)  # (sentences, N)
    targets = vectors[[said_row[specs[place].target] for place in chunk]]
    decided = decide(scoring, [specs[place] for place in chunk], targets, features.bank)

    by_atom = dict(zip(taus, soft_scores(features.atoms(phrases), features, taus), strict=True))
    by_name = dict(zip(taus, continuity(evidence.local_vectors, features, taus), strict=True))
    by_atom[GLOBAL] = features.similarities(features.texts(phrases))
    by_name[GLOBAL] = features.similarities(evidence.global_vectors)

    def rows_of(spec: EditSpec, tau: float) -> Float32:
        """(atoms, N). Atoms compared with the global vector have the same scores at every tau."""
        wanted = [atom_row[atom] for atom in _atoms(spec)]
        rows: Float32 = by_atom[tau][wanted]
        for number, (_, _, reads) in enumerate(_atom_keys(spec)):
            if reads == "global":
                rows[number] = by_atom[GLOBAL][wanted[number]]
        return rows

    def said_by(spec: EditSpec) -> Float32:
        """(sentences, N)"""
        return sentences[[said_row[one] for one in spec.sentences]]

    for row, place in enumerate(chunk):
        reference = name_row[queries[place].reference]
        whole = by_name[GLOBAL][reference]
        yield (
            place,
            QueryTerms(
                specs[place],
                keys_of(specs[place]),
                {
                    tau: np.vstack([said_by(specs[place]), rows_of(specs[place], tau), whole, by_name[tau][reference]])
                    for tau in by_atom
                },
                decided[row].continuity,
            ),
        )


def soft_scores(probes: Float32, features: Features, taus: Sequence[float]) -> Float32:
    """l_tau of every probe and picture: (P, d) -> (taus, P, N). l_tau is the soft maximum of late interaction."""
    if gpu_in_use() is not None:
        return _by_kernel(probes[:, None], features, taus)
    known = known_means(features)
    if known is not None:
        return known.of(probes, taus, known.kept)
    columns = np.ascontiguousarray(probes.T)  # (d, P)

    def scores(_: Float32, local_vectors: Float32) -> NDArray[Any]:
        out = np.empty((len(local_vectors), len(taus), columns.shape[1]), np.float32)
        for start in range(0, columns.shape[1], _COLUMNS):
            part = slice(start, start + _COLUMNS)
            soft_means(_dots(local_vectors, columns[:, part]), taus, out[..., part])
        return out

    return np.moveaxis(features.map(scores), 0, 2)  # (N, taus, P) -> (taus, P, N)


def continuity(references: Float32, features: Features, taus: Sequence[float]) -> Float32:
    """Reference continuity of every reference and picture: (R, M, d) -> (taus, R, N)."""
    if gpu_in_use() is not None:
        return _by_kernel(references, features, taus)
    count, probes, dim = references.shape
    known = known_means(features)
    if known is not None:
        found = np.empty((len(taus), count, len(features.bank)), np.float32)
        step = max(1, _PROBES // probes)
        for start in range(0, count, step):
            part = references[start : start + step]
            # nobody uses the best match of a reference's probes
            means = known.of(part.reshape(-1, dim), taus, known.kept - {BEST})  # (taus, b M, N)
            np.mean(means.reshape(len(taus), len(part), probes, -1), axis=2, out=found[:, start : start + step])
        return found
    columns = np.ascontiguousarray(references.reshape(-1, dim).T)  # (d, R M)
    step = max(1, _COLUMNS // probes)  # references multiplied at a time

    def scores(_: Float32, local_vectors: Float32) -> NDArray[Any]:
        out = np.empty((len(local_vectors), len(taus), count), np.float32)
        for start in range(0, count, step):
            stop = min(count, start + step)
            part = np.empty((len(local_vectors), len(taus), (stop - start) * probes), np.float32)
            soft_means(_dots(local_vectors, columns[:, start * probes : stop * probes]), taus, part)
            out[..., start:stop] = part.reshape(*part.shape[:2], stop - start, probes).mean(axis=3)
        return out

    return np.moveaxis(features.map(scores), 0, 2)


def known_means(features: Features) -> ProbeMeans | None:
    """The cached probe matches of these features, or an empty cache; None if the kernel cannot return them."""
    if features.known is not None:
        return features.known
    kernel = means_kernel(features.bank)
    return None if kernel is None else ProbeMeans(features.bank, kernel)


def _by_kernel(groups: Float32, features: Features, taus: Sequence[float]) -> Float32:
    """The mean l_tau of each group of probes, computed as a query with nothing else: (P, n, d) -> (taus, P, N)."""
    _, count, dim = groups.shape
    nothing, none = np.zeros((1, dim), np.float32), np.zeros(1, np.float32)
    equal = np.full(count, 1 / count, np.float32)
    return np.stack(
        [
            score_many([CompiledQuery(nothing, none, probes, equal, (), tau) for probes in groups], features.bank)
            for tau in taus
        ]
    )


def soft_means(dots: Float32, taus: Sequence[float], out: NDArray[Any]) -> None:
    """(b, M, P) -> out (b, taus, P): the mean of the dot products, weighted by their softmax at each tau.

    From the largest tau down: halving tau squares the powers, so the paper's five taus cost one exponential.
    """
    order = sorted(range(len(taus)), key=lambda place: -taus[place])
    below = dots - dots.max(axis=1, keepdims=True)
    powers, last = np.empty_like(dots), 0.0
    for place in order:
        tau = taus[place]
        if last and abs(last - 2 * tau) < 1e-9:
            if _FARTHEST / last > _SMALL:  # otherwise no power is that small
                np.maximum(powers, _NOTHING, out=powers)
            np.multiply(powers, powers, out=powers)
        else:
            np.multiply(below, np.float32(1 / tau), out=powers)
            np.exp(powers, out=powers)
        last = tau
        out[:, place] = np.einsum("bmp,bmp->bp", powers, dots) / np.einsum("bmp->bp", powers)


def _dots(local_vectors: Float32, columns: Float32) -> Float32:
    """(b, M, d), (d, P) -> (b, M, P), with one product per picture.

    In one product for all pictures, a picture's position could change its last bits, and equal pictures would not tie.
    """
    return np.asarray(np.matmul(local_vectors, columns), np.float32)


def keys_of(spec: EditSpec) -> tuple[Key, ...]:
    """The keys of a query's terms, in row order."""
    kept: tuple[Key, ...] = (("continuity", WHOLE, "global"), ("continuity", PARTS, "local"))
    said: list[Key] = [("target", sentence, "global") for sentence in spec.sentences]
    return (*said, *_atom_keys(spec), *kept)


def _atom_keys(spec: EditSpec) -> list[Key]:
    return [(factor, atom, BY_NAME[factor].evidence) for factor in ATOM_FACTORS for atom in spec.atoms(factor)]


def _atoms(spec: EditSpec) -> tuple[str, ...]:
    return tuple(atom for factor in ATOM_FACTORS for atom in spec.atoms(factor))
