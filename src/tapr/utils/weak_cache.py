"""Caches results for as long as the object they were computed from is alive."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
Result = TypeVar("Result")

_known: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()


def cached_for(source: object, key: Hashable, make: Callable[[], Result]) -> Result:
    """Return the result of `make`, computed once per source (compared by identity, not kept alive) and key."""
    results = _known.setdefault(source, {})
    if key not in results:
        results[key] = make()
    result: Result = results[key]
    return result


def weakly_cached(make: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a function: compute `make(source, *others)` once per combination of arguments."""

    @wraps(make)
    def once(*arguments: P.args, **named: P.kwargs) -> Result:
        source, *others = arguments
        return cached_for(source, (make, *others, *sorted(named.items())), lambda: make(*arguments, **named))

    return once
