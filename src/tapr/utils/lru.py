"""A bounded cache that drops what was used least recently. Safe to use from many threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from threading import RLock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LRU(Generic[Key, Value]):
    """Holds values up to a total size. Without `size_of`, each value counts as 1; a limit of None means no limit."""

    def __init__(self, limit: int | None, size_of: Callable[[Value], int] = lambda value: 1) -> None:
        self._limit, self._size_of = limit, size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()  # least recently used first
        self._size = 0
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._values))

    def items(self) -> list[tuple[Key, Value]]:
        with self._lock:
            return list(self._values.items())

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            self.pop(key)
            self._values[key] = value
            self._size += self._size_of(value)
            while self._limit is not None and self._size > self._limit:
                self.pop(next(iter(self._values)))

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Make a missing value while holding the lock, so that no value is made twice."""
        with self._lock:
            value = self.get(key)
            if value is None:
                value = make()
                self.put(key, value)
            return value

    def pop(self, key: Key) -> Value | None:
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._size -= self._size_of(value)
            return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._size = 0
