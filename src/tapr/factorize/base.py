"""What a factorizer is: (reference picture, edit) in, one EditSpec out."""

from __future__ import annotations

from typing import Protocol

from tapr.query.factorization import Factorization
from tapr.query.reference import Reference


class Factorizer(Protocol):
    @property
    def name(self) -> str: ...

    def factorize(self, reference: Reference, edit: str) -> Factorization: ...
