"""The interface of a method: queries and their records in, one score per gallery picture out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Protocol, Self

from tapr.errors import BadOption
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
        """The name of the reference picture."""

    @property
    def edit(self) -> str: ...


@dataclass(frozen=True)
class Setting:
    """The options of a run. A method uses those that apply to it."""

    dataset: str = ""
    weights: Weights | None = None
    tau: float = TAU
    scoring: Scoring = DEFAULT_SCORING


class Method(ABC):
    """Base class of all methods. A file in this folder defines the class and lists it in `ROWS`; other packages use an
    entry point.
    """

    name: str  # the value of --method
    label: str  # name in tables; the paper's name if it has one
    help: ClassVar[str] = ""  # one sentence
    order: ClassVar[int] = 50  # in tables
    reads_spec: ClassVar[bool] = False  # needs an EditSpec per query
    records: ClassVar[tuple[type[Payload], ...]] = ()  # other records it needs, one of each kind per query
    reads_captions: ClassVar[bool] = False  # needs captions of the gallery's pictures
    composes: ClassVar[bool] = False  # needs an encoder that gives a vector for a picture and words together
    ours: str = ""  # what we decided because the original does not publish it; "" if nothing
    whole: ClassVar[bool] = False  # must score all queries in one call
    multi_pass: ClassVar[bool] = False  # its records say what a model saw in pictures of the gallery
    # the tau at which it matches a spec's atoms like TAPR, so that both can run in one pass; None: it does not
    shared_tau: float | None = None
    tuned_by: ClassVar[frozenset[str]] = frozenset()  # options of search() that change its scores

    # constants by their attributes' names, with the values that --tune tries; the attribute holds the published one
    constants: ClassVar[Mapping[str, Sequence[Any]]] = {}

    @classmethod
    def make(cls, setting: Setting) -> Self:
        return cls()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of record that it needs."""
        return (*((SPEC,) if self.reads_spec else ()), *(record.kind for record in self.records))

    def settings(self) -> list[dict[str, Any]]:
        """Return every combination of the constants' values, that of this method first."""
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

    def inconsistent_records(self, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
        """Query id -> why a valid record does not fit the records of the other queries."""
        return {}

    @property
    def options(self) -> frozenset[str]:
        """All options it uses. Methods with records also use a factorizer or record files."""
        return self.tuned_by | ({"factorizer", "records"} if self.kinds else frozenset())


def refuse_unread(methods: Collection[Method], given: Collection[str]) -> None:
    """Refuse an option that none of the methods uses: it would silently change nothing."""
    read = frozenset[str]().union(*(method.options for method in methods))
    unread = next((name for name in given if name not in read), None)
    if unread is not None:
        names = ", ".join(method.name for method in methods)
        who = f"the method {names} does" if len(methods) == 1 else f"the methods {names} do"
        raise BadOption(f"{who} not read {unread}: leave {unread} out", unread, "conflicting_options")
