"""EditSpec: what the searcher wants, as one Target sentence and lists of Add, Preserve and Remove atoms.

Beside Target there may be further readings of the edit, each a sentence with a weight (Target's own is 1). Their
vectors are added to Target's; the paper's score has Target alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tapr.errors import BadInput, BadSpec
from tapr.query.edit_kinds import checked_kind
from tapr.query.factors import PRIOR, WORD_FACTORS, WordFactor
from tapr.utils.json_text import parse_json

__all__ = [
    "ATOM_FACTORS",
    "DEFAULT_WEIGHTS",
    "FACTORS",
    "EditSpec",
    "Weights",
    "WordFactor",
    "checked_reference_weight",
]

FACTORS = WORD_FACTORS
ATOM_FACTORS: tuple[WordFactor, ...] = FACTORS[1:]  # all but the target, which is one sentence

MAX_EDIT_CHARACTERS = 1000
MAX_TARGET_CHARACTERS = 600
MAX_ATOM_CHARACTERS = 160
MAX_ATOMS = 32  # in one factor
MAX_READINGS = 8  # beside the target


def _weight(value: Any, whose: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except OverflowError:  # JSON knows whole numbers of any length
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadSpec(f"the weight of {whose} must be a number of 0 or more, not {_shown(value)}")
    return number


def _shown(value: Any) -> str:
    """Short enough for a sentence; Python writes no number of more than 4300 digits."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"so large a value of the type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True)
class Weights:
    """theta of the four factors; only their ratios matter (docs/method.md tells where the defaults come from)."""

    target: float = PRIOR["target"]
    add: float = PRIOR["add"]
    preserve: float = PRIOR["preserve"]
    remove: float = PRIOR["remove"]

    def __post_init__(self) -> None:
        for factor in FACTORS:
            object.__setattr__(self, factor, _weight(getattr(self, factor), factor))
        if not any(self.as_dict().values()):
            raise BadSpec("all four weights are 0: give at least one factor a weight above 0")

    def as_dict(self) -> dict[WordFactor, float]:
        return {factor: getattr(self, factor) for factor in FACTORS}

    @classmethod
    def parse(cls, value: str | Mapping[str, float] | Weights) -> Weights:
        """Read `1,0.5,0.5,0.3` (T,A,P,R), `add=0.8,remove=0` or a mapping; what is not named keeps its default."""
        if isinstance(value, Weights):
            return value
        if isinstance(value, str):
            value = _weights_from_text(value)
        if not isinstance(value, Mapping):
            raise BadSpec(f"weights must be an object with the keys {', '.join(FACTORS)}, not {_shown(value)}")
        unknown = sorted(set(value) - set(FACTORS), key=str)
        if unknown:
            raise BadSpec(f"unknown weight {unknown[0]!r}: the factors are {', '.join(FACTORS)}")
        return cls(**value)


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, init=False)
class EditSpec:
    """One composed query in words. Atoms are unique over all factors, so an atom's text names it."""

    target: str
    add: tuple[str, ...]
    preserve: tuple[str, ...]
    remove: tuple[str, ...]
    weights: Weights | None
    atom_weights: tuple[tuple[str, float], ...]  # sorted; only weights other than 1
    continuity: float | None  # how much of the reference stays, 0 nothing to 1 all; None: the score's rule decides
    readings: tuple[tuple[str, float], ...]  # further sentences beside Target, and their weights
    kind: str | None  # the kind of edit, a name of query/edit_kinds.py; None: not sure

    def __init__(
        self,
        target: str,
        add: Iterable[str] = (),
        preserve: Iterable[str] = (),
        remove: Iterable[str] = (),
        weights: Weights | Mapping[str, float] | None = None,
        atom_weights: Mapping[str, float] | Iterable[tuple[str, float]] = (),
        continuity: float | None = None,
        readings: Mapping[str, float] | Iterable[str | tuple[str, float]] = (),
        kind: str | None = None,
    ) -> None:
        set_ = object.__setattr__  # the one way to fill the fields of a frozen dataclass
        set_(self, "target", _phrase(target, "target", MAX_TARGET_CHARACTERS))
        given: dict[WordFactor, Iterable[str]] = {"add": add, "preserve": preserve, "remove": remove}
        for factor in ATOM_FACTORS:
            set_(self, factor, _atoms(given[factor], factor))
        self._refuse_duplicates()
        set_(self, "weights", None if weights is None else Weights.parse(weights))
        set_(self, "atom_weights", self._checked_atom_weights(atom_weights))
        set_(self, "continuity", None if continuity is None else checked_reference_weight(continuity))
        set_(self, "readings", self._checked_readings(readings))
        set_(self, "kind", None if kind is None else checked_kind(kind))

    def atoms(self, factor: WordFactor) -> tuple[str, ...]:
        return (self.target,) if factor == "target" else getattr(self, factor)

    @property
    def sentences(self) -> dict[str, float]:
        """Target and the further readings, each with its share of their sum."""
        weights = {self.target: 1.0, **dict(self.readings)}
        _, exponent = math.frexp(max(weights.values()))  # by a power of two no ratio is rounded, and no sum overflows
        weights = {sentence: math.ldexp(weight, -exponent) for sentence, weight in weights.items()}
        total = math.fsum(weights.values())
        return {sentence: weight / total for sentence, weight in weights.items()}

    @property
    def phrases(self) -> tuple[str, ...]:
        """All phrases: the target and its other readings, then the atoms of every factor."""
        return (*self.sentences, *(atom for factor in ATOM_FACTORS for atom in self.atoms(factor)))

    def weight_of(self, atom: str) -> float:
        """An atom's weight within its factor, 1 unless said otherwise."""
        return dict(self.atom_weights).get(atom, 1.0)

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"target": self.target}
        out.update({factor: list(self.atoms(factor)) for factor in ATOM_FACTORS})
        if self.weights is not None:
            out["weights"] = self.weights.as_dict()
        if self.atom_weights:
            out["atom_weights"] = dict(self.atom_weights)
        if self.continuity is not None:
            out["continuity"] = self.continuity
        if self.readings:
            out["readings"] = dict(self.readings)
        if self.kind is not None:
            out["kind"] = self.kind
        return out

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def digest(self) -> str:
        """sha256 over a canonical JSON form: equal specs, equal digests, on any machine."""
        canonical = json.dumps(self.to_dict(), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @classmethod
    def from_dict(cls, value: Any) -> EditSpec:
        if not isinstance(value, Mapping):
            raise BadSpec(f"a spec must be a JSON object with a target, not {type(value).__name__}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(key) for key in set(value) - known)
        if unknown:
            raise BadSpec(f"unknown key {unknown[0]!r} in the spec: the keys are {', '.join(sorted(known))}")
        if "target" not in value:
            raise BadSpec("the spec has no target: say in one sentence what the picture you want shows")
        return cls(**value)

    @classmethod
    def from_json(cls, text: str | bytes) -> EditSpec:
        try:
            value = parse_json(text)
        except ValueError as error:  # JSONDecodeError and UnicodeDecodeError alike
            raise BadSpec(f"the spec is not valid JSON ({error})") from None
        return cls.from_dict(value)

    @classmethod
    def from_file(cls, path: str | Path) -> EditSpec:
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise BadSpec(f"cannot read the spec {str(path)!r}: {error.strerror}") from None
        try:
            return cls.from_json(text)
        except BadInput as error:
            raise BadSpec(f"{path}: {error}") from None

    def _refuse_duplicates(self) -> None:
        seen: dict[str, WordFactor] = {}
        for factor in ATOM_FACTORS:
            for atom in self.atoms(factor):
                before = seen.setdefault(atom.casefold(), factor)
                if before != factor:
                    raise BadSpec(f"the atom {atom!r} stands in both {before} and {factor}: keep it in one")

    def _checked_readings(self, given: Any) -> tuple[tuple[str, float], ...]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise BadSpec(f"readings must map a sentence to its weight, not {_shown(given)}")
        pairs = (
            given.items()
            if isinstance(given, Mapping)
            else [(one, 1.0) if isinstance(one, str) else one for one in given]
        )
        checked: dict[str, float] = {}
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise BadSpec(f"a reading is a sentence and its weight, not {_shown(pair)}")
            sentence = _phrase(pair[0], "a reading", MAX_TARGET_CHARACTERS)
            if sentence in (self.target, *checked):
                raise BadSpec(f"the reading {sentence!r} stands there twice: each sentence counts once, Target too")
            checked[sentence] = _weight(pair[1], f"the reading {sentence!r}")
        if len(checked) > MAX_READINGS:
            raise BadSpec(f"the spec has {len(checked)} readings, more than the {MAX_READINGS} allowed")
        return tuple((sentence, weight) for sentence, weight in checked.items() if weight > 0)

    def _checked_atom_weights(self, given: Any) -> tuple[tuple[str, float], ...]:
        try:
            pairs = dict(given)
        except (TypeError, ValueError):
            raise BadSpec(f"atom_weights must map an atom to a number, not {_shown(given)}") from None
        known = {atom.casefold(): atom for factor in ATOM_FACTORS for atom in self.atoms(factor)}
        checked = {}
        for name, weight in pairs.items():
            atom = known.get(_collapse(name).casefold()) if isinstance(name, str) else None
            if atom is None:
                raise BadSpec(f"atom_weights names {name!r}, which is no atom of this spec")
            if (number := _weight(weight, f"the atom {atom!r}")) != 1:
                checked[atom] = number
        return tuple(sorted(checked.items()))


def checked_reference_weight(value: Any) -> float:
    """How much of the reference stays."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise BadSpec(
            f"how much of the reference stays is a number from 0 (nothing) to 1 (everything), not {_shown(value)}"
        )
    return float(value)


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _phrase(value: Any, name: str, limit: int) -> str:
    if not isinstance(value, str):
        raise BadSpec(f"{name} must be text, not {type(value).__name__}")
    text = _collapse(value)
    if not text:
        raise BadSpec(f"{name} is empty: write a phrase or leave it out")
    if not text.isprintable():
        raise BadSpec(f"{name} holds an unprintable character: {text[:40]!r}")
    if len(text) > limit:
        raise BadSpec(f"{name} has {len(text)} characters, more than the {limit} allowed: {text[:40]!r}...")
    return text


def _atoms(value: Any, factor: str) -> tuple[str, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise BadSpec(f"{factor} must be a list of phrases, not {_shown(value)}")
    atoms = tuple(_phrase(item, f"an atom of {factor}", MAX_ATOM_CHARACTERS) for item in value)
    if len(atoms) > MAX_ATOMS:
        raise BadSpec(f"{factor} has {len(atoms)} atoms, more than the {MAX_ATOMS} allowed")
    seen = set()
    for atom in atoms:
        if atom.casefold() in seen:
            raise BadSpec(f"the atom {atom!r} stands twice in {factor}")
        seen.add(atom.casefold())
    return atoms


def _weights_from_text(text: str) -> dict[str, float]:
    parts = [part.strip() for part in text.split(",")]
    try:
        if all("=" in part for part in parts):
            pairs = [part.split("=", 1) for part in parts]
            return {name.strip(): float(number) for name, number in pairs}
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != len(FACTORS):
        raise BadSpec(
            f"cannot read the weights {text!r}: write four numbers (T,A,P,R) or names such as add=0.8,remove=0"
        )
    return dict(zip(FACTORS, numbers, strict=True))
