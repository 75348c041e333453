"""What is remembered, and for how long."""

from __future__ import annotations

import gc
import weakref

from tapr.utils.weak_cache import weakly_cached


class Source:
    pass


def test_made_once_for_the_same_arguments_and_forgotten_with_the_source() -> None:
    made: list[int] = []

    @weakly_cached
    def double(source: Source, number: int) -> list[int]:
        made.append(number)
        return [2 * number]

    source, other = Source(), Source()
    assert double(source, 3) is double(source, 3)
    assert double(source, 4) == [8]
    assert double(other, 3) == [6]
    assert made == [3, 4, 3]
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None
