"""What a method is: questions and their records in, one score for every gallery picture out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Protocol, Self

from tapr.errors import BadInput
from tapr.factorize.records import SPEC
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet
from tapr.query.scoring import DEFAULT_SCORING, Scoring
from tapr.query.spec import Weights
from tapr.score.compile import TAU
from tapr.types import Float32


class QueryLike(Protocol):
    """The part of a benchmark's query that a method may see; never its right answers."""

    @property
    def id(self) -> str: ...
    @property
    def reference(self) -> str:
        """The name of a picture."""

    @property
    def edit(self) -> str: ...


@dataclass(frozen=True)
class Setting:
    """The options of a run; a method uses those that it has."""

    dataset: str = ""
    weights: Weights | None = None
    tau: float = TAU
    scoring: Scoring = DEFAULT_SCORING


class Method(ABC):
    """A file of this folder holds the class and lists it in `ROWS`; another package names it by an entry point."""

    name: str  # as given to --method
    label: str  # as in tables, and in the paper's own where they have it
    help: ClassVar[str] = ""  # one sentence
    order: ClassVar[int] = 50  # in tables
    reads_spec: ClassVar[bool] = False  # whether it needs an EditSpec of each query
    records: ClassVar[tuple[type[Payload], ...]] = ()  # the other records it needs, one of each kind per query
    ours: str = ""  # what is not public of the original and was decided here; "" when nothing
    whole: ClassVar[bool] = False  # whether it must see all queries at once
    # the tau at which it matches a spec's atoms as TAPR does, so that both can be run in one pass; None: it does not
    shared_tau: float | None = None
    tuned_by: ClassVar[frozenset[str]] = frozenset()  # the options that change its scores, by their names in search()

    # constants by their attributes' names, with the values that --tune tries; the attribute holds the published one
    constants: ClassVar[Mapping[str, Sequence[Any]]] = {}

    @classmethod
    def make(cls, setting: Setting) -> Self:
        return cls()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all records that it needs."""
        return (*((SPEC,) if self.reads_spec else ()), *(record.kind for record in self.records))

    def settings(self) -> list[dict[str, Any]]:
        """Every combination of the constants' values, that of this method first; one where it has no constants."""
        own = {name: getattr(self, name) for name in self.constants}
        every = (dict(zip(self.constants, values, strict=True)) for values in product(*self.constants.values()))
        return [own, *(values for values in every if values != own)]

    def with_constants(self, values: Mapping[str, Any]) -> Self:
        """A copy with other constants."""
        made = copy(self)
        for name, value in values.items():
            setattr(made, name, value)
        return made

    @abstractmethod
    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        """-> (Q, N), higher is better."""

    def misfits(self, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
        """Query id -> why a record that is right by itself cannot be used beside the others."""
        return {}

    @property
    def options(self) -> frozenset[str]:
        """All it reads beside the question: a factorizer or records are read by a method that needs records."""
        return self.tuned_by | ({"factorizer", "records"} if self.kinds else frozenset())


def refuse_unread(methods: Collection[Method], given: Collection[str]) -> None:
    """An option that none of the methods reads would change nothing, whatever its value: it is refused."""
    read = frozenset[str]().union(*(method.options for method in methods))
    unread = next((name for name in given if name not in read), None)
    if unread is not None:
        names = ", ".join(method.name for method in methods)
        who = f"the method {names} does" if len(methods) == 1 else f"the methods {names} do"
        raise BadInput(f"{who} not read {unread}: leave {unread} out")
