"""Results that live as long as what they were made from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
Result = TypeVar("Result")


def remembered(make: Callable[P, Result]) -> Callable[P, Result]:
    """`make(source, *others)`, once for the same arguments. The source is known by identity and not kept alive."""
    known: WeakKeyDictionary[Any, dict[tuple[Any, ...], Result]] = WeakKeyDictionary()

    @wraps(make)
    def recall(*arguments: P.args, **named: P.kwargs) -> Result:
        source, *others = arguments
        results = known.setdefault(source, {})
        key = (*others, *sorted(named.items()))
        if key not in results:
            results[key] = make(*arguments, **named)
        return results[key]

    return recall
