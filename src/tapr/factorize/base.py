"""What a factorizer is: (reference picture, edit) in, one EditSpec out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tapr.query.factorization import Factorization
from tapr.query.reference import Reference


class Factorizer(Protocol):
    """Turns a reference and an edit into a spec."""

    @property
    def name(self) -> str: ...

    def factorize(self, reference: Reference, edit: str) -> Factorization: ...


@runtime_checkable
class SeveralFactorizer(Factorizer, Protocol):
    """A factorizer that reads further references too."""

    def factorize_several(self, references: Sequence[Reference], edit: str) -> Factorization: ...


def factorize(references: Sequence[Reference], edit: str, factorizer: Factorizer) -> Factorization:
    """Factorize an edit of one or several references; most factorizers read the first alone."""
    if len(references) > 1 and isinstance(factorizer, SeveralFactorizer):
        return factorizer.factorize_several(references, edit)
    return factorizer.factorize(references[0], edit)
