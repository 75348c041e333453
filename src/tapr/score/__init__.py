"""The score: its factors as data, the only weighting of them, and the definition that every kernel must meet.

The package can be called: `tapr.score(query, global_vectors, local_vectors)` is `tapr.score.definition.score`. A name
of `tapr` that was the function alone would hide the package, or be lost as soon as a module of it is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tapr.score.compile import CompiledQuery
    from tapr.score.definition import Float64


class _Score(ModuleType):
    def __call__(self, query: CompiledQuery, global_vectors: NDArray[Any], local_vectors: NDArray[Any]) -> Float64:
        """S for N pictures, by the definition: (N, d), (N, M, d) -> (N,)."""
        from tapr.score.definition import score

        return score(query, global_vectors, local_vectors)


sys.modules[__name__].__class__ = _Score
