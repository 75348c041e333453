"""What a method is: questions and their records in, one score for every gallery picture out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from tapr.encoders.base import Float32
from tapr.methods.features import Features
from tapr.methods.records import RecordSet


class Asked(Protocol):
    """The part of a benchmark's query that a method may see; never its right answers."""

    @property
    def id(self) -> str: ...
    @property
    def reference(self) -> str:
        """The name of a picture."""

    @property
    def edit(self) -> str: ...


class Method(ABC):
    name: str  # as given to --method
    label: str  # as in tables
    kinds: ClassVar[tuple[str, ...]] = ()  # of the records it needs, one a query
    ours: str = ""  # what is not public of the original and was decided here; "" when nothing
    whole: ClassVar[bool] = False  # whether it must see all queries at once

    @abstractmethod
    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        """-> (Q, N), higher is better."""
