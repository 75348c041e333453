"""From words and a reference picture to the one form that every kernel computes. Weights are decided here only.

    S(image) = sum_k global_weights[k] * (global_probes[k] . v0) + sum_i weights[i] * l_tau(probes[i]; V)

with l_tau(u; V) = sum_j softmax_j(u . v_j / tau) (u . v_j). The first sum is linear in v0, and kernels see one target.
docs/method.md derives it from the operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np

from tapr.encoders.base import Encoder, Evidence
from tapr.errors import BadInput, BadOption
from tapr.query.factors import BY_NAME, FACTORS, Factor, FactorRow, Reads, WordFactor
from tapr.query.scoring import REFERENCE_FEATURES, ReferenceFeatures
from tapr.query.spec import ATOM_FACTORS, DEFAULT_WEIGHTS, EditSpec, Weights, checked_reference_weight
from tapr.types import Float32

TAU = 0.02
# Beyond these, a soft match is the best place alone, or the plain mean: no float32 score would change any more.
TAU_MIN, TAU_MAX = 1e-9, 1e9
_LONGEST = 1.01  # of a vector that has length 1 but for its rounding
# what people call the terms of a picture: its global vector, its local vectors, those inside a crop
WHOLE, PARTS, CHOSEN = "overall look", "details", "selected area"

References = Evidence | Sequence[Evidence] | None  # what a query keeps of: nothing, one picture, several
# What marked pictures weigh beside theta of their factor, all pictures of a list together (docs/method.md).
FEEDBACK: dict[WordFactor, float] = {"preserve": 0.25, "remove": 0.1}
MARKS: dict[WordFactor, str] = {"preserve": "more_like", "remove": "not_like"}  # the option that marks them


@dataclass(frozen=True)
class Continuity:
    """How much of the reference stays: `reference_weight` of the score is the picture's, the rest the words'."""

    reference_weight: float
    reference_features: ReferenceFeatures = "both"

    def __post_init__(self) -> None:
        checked_reference_weight(self.reference_weight)
        if self.reference_features not in REFERENCE_FEATURES:
            known = ", ".join(REFERENCE_FEATURES)
            raise BadInput(f"unknown reference features {self.reference_features!r}: choose {known}")


@dataclass(frozen=True, eq=False)
class Feedback:
    """A picture that a person marked: more like it (Preserve evidence), or not like it (Remove evidence)."""

    factor: WordFactor  # preserve or remove
    name: str  # what explanations call the picture
    evidence: Evidence  # of a part of it, without a global vector


@dataclass(frozen=True)
class Part:
    """One term before it has vectors: a phrase, or the reference (by its global vector or by its local ones)."""

    id: str
    factor: Factor
    text: str
    reads: Reads
    theta: WordFactor | None  # whose weight it is multiplied with; None: with none
    weight: float  # signed, for the term as a whole
    picture: int = 0  # of several references, or of several marked pictures, which one
    feedback: bool = False  # the vectors are those of a marked picture


@dataclass(frozen=True)
class Term:
    """One thing the score is made of, for explanations. Its probes are [start:stop] of those it reads.

    Its id says where it comes from, with numbers from 0 on: target, target:1 (the first further reading), add:2,
    reference:1:local, more_like:0:global.
    """

    factor: Factor
    text: str  # what people call it
    reads: Reads
    start: int
    stop: int
    feedback: bool = False  # its probes are a marked picture's
    id: str = ""  # unique within a query

    @property
    def from_words(self) -> bool:
        return BY_NAME[self.factor].from_words and not self.feedback


@dataclass(frozen=True, eq=False)
class CompiledQuery:
    """A whole query: probes of a picture's global vector, probes of its local vectors, one signed weight per probe."""

    global_probes: Float32  # (g, d)
    global_weights: Float32  # (g,)
    probes: Float32  # (n, d)
    weights: Float32  # (n,), negative for Remove
    terms: tuple[Term, ...]
    tau: float = TAU

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", checked_tau(self.tau))
        for numbers in (self.global_probes, self.global_weights, self.probes, self.weights):
            if not np.isfinite(numbers).all():
                raise BadInput("the query holds numbers that are infinite or not numbers: compile it from unit vectors")

    @property
    def dim(self) -> int:
        return int(self.global_probes.shape[1])

    @cached_property
    def target(self) -> Float32:
        """(d,): all that reads the global vector, folded into one vector; kernels know no more of it."""
        if len(self.global_probes) == 1:
            return np.asarray(self.global_probes[0], np.float32)
        weighted = self.global_weights.astype(np.float64)[:, None] * self.global_probes
        return np.asarray(weighted.sum(axis=0), np.float32)

    @cached_property
    def target_weight(self) -> float:
        return float(self.global_weights[0]) if len(self.global_probes) == 1 else 1.0

    def keep(self, wanted: Callable[[Term], bool]) -> CompiledQuery:
        """The same query with only the terms wanted; their weights are left as they are."""
        rows: dict[Reads, list[int]] = {"global": [], "local": []}
        terms = []
        for term in filter(wanted, self.terms):
            start = len(rows[term.reads])
            rows[term.reads] += range(term.start, term.stop)
            terms.append(replace(term, start=start, stop=len(rows[term.reads])))
        return replace(
            self,
            global_probes=self.global_probes[rows["global"]],
            global_weights=self.global_weights[rows["global"]],
            probes=self.probes[rows["local"]],
            weights=self.weights[rows["local"]],
            terms=tuple(terms),
        )


@dataclass(frozen=True, eq=False)
class EncodedSpec:
    """A spec's phrases and its reference as vectors; they do not depend on any weight."""

    spec: EditSpec
    references: tuple[Evidence, ...]  # of one picture each; of a part of it, without a global vector
    sentences: Mapping[str, Float32]  # Target and its other readings, (d,) each
    atoms: Mapping[str, Float32]  # (d,) each
    feedback: tuple[Feedback, ...] = ()

    @classmethod
    def of(
        cls, spec: EditSpec, reference: References, encoder: Encoder, feedback: Sequence[Feedback] = ()
    ) -> EncodedSpec:
        references = (reference,) if isinstance(reference, Evidence) else tuple(reference or ())
        vectors: dict[str, Float32] = {}
        encode: dict[Reads, Callable[[Sequence[str]], Float32]] = {
            "local": encoder.encode_atoms,
            "global": encoder.encode_texts,
        }
        for reads, encoded in encode.items():
            factors = [factor for factor in ATOM_FACTORS if BY_NAME[factor].evidence == reads]
            atoms = [atom for factor in factors for atom in spec.atoms(factor)]
            vectors |= zip(atoms, encoded(atoms), strict=True) if atoms else ()
        said, dim = list(spec.sentences), encoder.card.dim
        sentences = dict(zip(said, encoder.encode_texts(said), strict=True))
        for text, vector in (*sentences.items(), *vectors.items()):
            refuse_odd(vector, (dim,), f"the encoder's vector of {text[:40]!r}")
        for one in (*references, *(marked.evidence for marked in feedback)):
            refuse_odd(one.global_vectors, (None, dim), "the reference's global vector")
            refuse_odd(one.local_vectors[0], (None, dim), "one of the reference's local vectors")
        return cls(spec, references, sentences, vectors, tuple(feedback))

    @property
    def target(self) -> Float32:
        """(d,): the Target sentence alone."""
        return self.sentences[self.spec.target]

    def compile(
        self, weights: Weights | None = None, tau: float = TAU, continuity: Continuity | None = None
    ) -> CompiledQuery:
        uncropped = [len(one.global_vectors) > 0 for one in self.references]
        return self.assemble(weigh(self.spec, uncropped, weights, continuity, self.feedback), tau)

    def assemble(self, parts: Sequence[Part], tau: float = TAU) -> CompiledQuery:
        """Weighed parts of this spec, with their vectors."""
        return assemble([(part, self._vectors(part)) for part in parts], len(self.target), tau)

    def _vectors(self, part: Part) -> Float32:
        """(n, d)"""
        if part.factor == "target":
            return np.asarray(self.sentences[part.text][None])
        if part.factor != "continuity" and not part.feedback:
            return np.asarray(self.atoms[part.text][None])
        picture = self.feedback[part.picture].evidence if part.feedback else self.references[part.picture]
        return picture.global_vectors[:1] if part.reads == "global" else picture.local_vectors[0]


def compile_query(
    spec: EditSpec,
    reference: References,
    encoder: Encoder,
    weights: Weights | None = None,
    tau: float = TAU,
    continuity: Continuity | None = None,
    feedback: Sequence[Feedback] = (),
) -> CompiledQuery:
    """Encode the spec and weigh its parts; `weights` goes before the spec's own, those before the defaults.

    `reference` holds one picture; several references are given one by one. `continuity` says how much of them stays;
    without it the score is the paper's. `feedback` are pictures that a person marked.
    """
    return EncodedSpec.of(spec, reference, encoder, feedback).compile(weights, tau, continuity)


def assemble(parts: Sequence[tuple[Part, Float32]], dim: int, tau: float = TAU) -> CompiledQuery:
    """Parts with their vectors (each (n, d)) -> a query; a part's weight is shared evenly by its vectors."""
    empty = np.zeros((0, dim), np.float32)
    vectors: dict[Reads, list[Float32]] = {"global": [empty], "local": [empty]}
    weights: dict[Reads, list[Float32]] = {"global": [empty[:, 0]], "local": [empty[:, 0]]}
    terms, count = [], {"global": 0, "local": 0}
    for part, block in parts:
        start = count[part.reads]
        count[part.reads] = stop = start + len(block)
        terms.append(Term(part.factor, part.text, part.reads, start, stop, part.feedback, part.id))
        vectors[part.reads].append(np.asarray(block, np.float32))
        weights[part.reads].append(np.full(len(block), part.weight / len(block), np.float32))
    return CompiledQuery(
        global_probes=np.concatenate(vectors["global"]),
        global_weights=np.concatenate(weights["global"]),
        probes=np.concatenate(vectors["local"]),
        weights=np.concatenate(weights["local"]),
        terms=tuple(terms),
        tau=tau,
    )


def weigh(
    spec: EditSpec,
    uncropped: bool | Sequence[bool],
    weights: Weights | None = None,
    continuity: Continuity | None = None,
    feedback: Sequence[Feedback] = (),
) -> list[Part]:
    """Every term with its signed weight; magnitudes sum to 1. The one place where theta becomes weights.

    `uncropped` says of each reference whether all of it counts, or a part; True is one whole picture.
    """
    theta = weights or spec.weights or DEFAULT_WEIGHTS
    parts = shares(spec, uncropped, continuity)
    parts += _marked_pictures(feedback, "both" if continuity is None else continuity.reference_features)
    factors = [1.0 if part.theta is None else getattr(theta, part.theta) for part in parts]
    factors = _scaled(factors, [part.weight != 0 for part in parts])
    parts = [replace(part, weight=factor * part.weight) for factor, part in zip(factors, parts, strict=True)]
    total = sum(abs(part.weight) for part in parts)
    if total <= 0:
        raise BadInput("every factor that this query uses has weight 0: give Target or another used factor a weight")
    return [replace(part, weight=part.weight / total) for part in parts]


def shares(spec: EditSpec, uncropped: bool | Sequence[bool], continuity: Continuity | None) -> list[Part]:
    """Return what each term weighs where every theta is 1: S is linear in theta, and this is how."""
    uncropped = [True] * uncropped if isinstance(uncropped, bool) else uncropped
    has_reference = len(uncropped) > 0
    is_paper = has_reference and continuity is None
    word_share = 1 - continuity.reference_weight if has_reference and continuity is not None else 1.0
    parts: list[Part] = []
    for row in FACTORS:
        if row.name == "continuity":
            parts += _references(spec, uncropped, continuity)
        elif row.name == "target":
            sentences = {spec.target: 1.0} if is_paper else spec.sentences  # the paper has one sentence
            parts += _sentences(sentences, row, word_share)
        else:
            halved = row.half_is_picture and has_reference
            parts += _atoms(spec, row, row.name, word_share / 2 if halved else word_share)
    return parts


def _sentences(sentences: Mapping[str, float], row: FactorRow, share: float) -> list[Part]:
    return [
        Part(f"target:{number}" if number else "target", "target", sentence, row.evidence, "target", share * weight)
        for number, (sentence, weight) in enumerate(sentences.items())
    ]


def _references(spec: EditSpec, uncropped: Sequence[bool], continuity: Continuity | None) -> list[Part]:
    """Return the references' parts, of equal weight; of a reference's chosen part only places are compared.

    In the paper they have half of Preserve, or all of it where no atom is kept; otherwise a weight of their own.
    """
    features: ReferenceFeatures = "local"
    theta: WordFactor | None = "preserve"
    share = 0.5 if spec.preserve else 1.0
    if continuity is not None:
        features, theta, share = continuity.reference_features, None, continuity.reference_weight
    if features == "global" and not all(uncropped):
        what = "a chosen part of the reference is compared by its places: use the reference features local, or both"
        raise BadOption(what, "reference_features")
    return [
        Part(
            f"reference:{picture}:{reads}",
            "continuity",
            f"{name} (picture {picture + 1})" if len(uncropped) > 1 else name,
            reads,
            theta,
            share * weight / len(uncropped),
            picture,
        )
        for picture, is_whole in enumerate(uncropped)
        for reads, name, weight in _compared(is_whole, features)
    ]


def _compared(is_whole: bool, features: ReferenceFeatures) -> list[tuple[Reads, str, float]]:
    """Return which vectors of a picture count, what people call them, and their share of the picture's weight."""
    names: dict[Reads, str] = {"global": WHOLE, "local": PARTS if is_whole else CHOSEN}
    weights = REFERENCE_FEATURES[features if is_whole else "local"]
    return [(reads, names[reads], weight) for reads, weight in weights.items()]


def _marked_pictures(feedback: Sequence[Feedback], features: ReferenceFeatures) -> list[Part]:
    """Return marked pictures as parts of Preserve and Remove; those of a list have equal weights."""
    counts = Counter(marked.factor for marked in feedback)
    numbers = {factor: count() for factor in counts}
    parts = []
    for picture, marked in enumerate(feedback):
        mark, number = MARKS[marked.factor], next(numbers[marked.factor])
        share = BY_NAME[marked.factor].sign * FEEDBACK[marked.factor]
        for reads, name, part in _compared(len(marked.evidence.global_vectors) > 0, features):
            text = f"{mark.replace('_', ' ')} {marked.name}: {name}"
            weight = share * part / counts[marked.factor]
            parts.append(
                Part(
                    f"{mark}:{number}:{reads}",
                    marked.factor,
                    text,
                    reads,
                    marked.factor,
                    weight,
                    picture,
                    feedback=True,
                )
            )
    return parts


def _atoms(spec: EditSpec, row: FactorRow, factor: WordFactor, share: float) -> list[Part]:
    """Return a factor's atoms, each with its part of the share: equal, unless atoms carry weights."""
    atoms = spec.atoms(factor)
    raw = dict(zip(atoms, _scaled([spec.weight_of(atom) for atom in atoms]), strict=True))
    total = sum(raw.values())
    if raw and total <= 0:
        raise BadInput(f"every atom of {factor} has weight 0: set the factor's own weight to 0 instead")
    return [
        Part(f"{factor}:{number}", factor, atom, row.evidence, factor, row.sign * share * weight / total)
        for number, (atom, weight) in enumerate(raw.items())
    ]


def checked_tau(value: float) -> float:
    """Of every query, wherever it comes from."""
    if isinstance(value, bool) or not TAU_MIN <= value <= TAU_MAX:  # nor is NaN between them
        raise BadInput(f"tau must be from {TAU_MIN:g} (the best place alone) to {TAU_MAX:g} (the mean), not {value!r}")
    return float(value)


def refuse_odd(vectors: Float32, shape: tuple[int | None, ...], what: str) -> None:
    """Vectors that no score can be made of: they have length 1, or 0 where there is nothing."""
    found = np.shape(vectors)
    if len(found) != len(shape) or any(want not in (None, have) for want, have in zip(shape, found, strict=True)):
        wanted = " x ".join("M" if size is None else str(size) for size in shape)
        raise BadInput(f"{what} has the shape {' x '.join(map(str, found))}, not {wanted}: use the gallery's encoder")
    longest = float(np.linalg.norm(np.asarray(vectors, np.float64), axis=-1).max(initial=0))
    if not longest <= _LONGEST:  # nor is NaN
        raise BadInput(f"{what} has the length {longest:.4g}: an encoder must give vectors of length 1")


def _scaled(weights: Sequence[float], used: Sequence[bool] | None = None) -> list[float]:
    """The same ratios, with the largest that is used near 1: sums neither overflow nor vanish.

    By a power of two, so that no ratio is rounded; what is 2^1000 times smaller than the largest counts as 0.
    """
    largest = max(
        (weight for weight, use in zip(weights, used or [True] * len(weights), strict=True) if use), default=0
    )
    if largest == 0:
        return list(weights)
    _, exponent = math.frexp(largest)
    return [math.ldexp(min(weight, largest), -exponent) for weight in weights]
