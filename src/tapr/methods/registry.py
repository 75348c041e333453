"""Methods by name, in the order of the tables."""

from __future__ import annotations

import inspect

from tapr.errors import BadInput, BadOption
from tapr.factorize.records import SPEC
from tapr.methods.base import Method, Setting
from tapr.methods.baselines import IN_EVERY_TABLE
from tapr.plugins import Registry
from tapr.query.scoring import DEFAULT_SCORING, Scoring
from tapr.query.spec import Weights
from tapr.score.compile import TAU


def _is_method(offered: object) -> bool:
    return isinstance(offered, type) and issubclass(offered, Method) and not inspect.isabstract(offered)


METHODS: Registry[type[Method]] = Registry(
    "method",
    "tapr.methods",
    "tapr.methods",
    name_of=lambda method: method.name,
    order_of=lambda method: method.order,
    is_row=_is_method,
)
BASELINES = tuple(method.name for method in IN_EVERY_TABLE)


def make_method(
    name: str,
    dataset: str = "",
    weights: Weights | None = None,
    tau: float = TAU,
    scoring: Scoring = DEFAULT_SCORING,
) -> Method:
    """Create a method. `dataset` selects SDR-CIR's constants; `weights`, `tau` and `scoring` are for TAPR."""
    if name not in METHODS:
        raise BadOption(f"unknown method {name!r}: choose {', '.join(METHODS)} or all", "method", "unknown_name")
    method = METHODS[name]
    _check_kinds(method)
    return method.make(Setting(dataset, weights, tau, scoring))


def _check_kinds(method: type[Method]) -> None:
    """Two methods must not define the same kind of record: they would read each other's records."""
    for record in method.records:
        others = (other for _, row in METHODS.working() for other in row.records if other.kind == record.kind)
        first = next(others, record)
        if record.kind == SPEC or first is not record:
            raise BadInput(
                f"the method {method.name!r} calls its records {record.kind!r}, as another one does: "
                "its package must give them another name",
                code="unknown_name",
            )
