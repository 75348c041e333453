"""Answers of a server beside rankings (tapr/result.py). Fields that a newer server adds are passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class _Answer:
    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        names = {one.name for one in fields(cls)}
        return cls(**{name: part for name, part in value.items() if name in names})


@dataclass(frozen=True)
class Picture(_Answer):
    """One of a gallery's list."""

    id: str
    name: str
    width: int | None = None
    height: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    caption: str | None = None


@dataclass(frozen=True)
class Gallery(_Answer):
    """What a gallery is, and a page of its pictures."""

    name: str
    count: int
    snapshot: int
    encoder: str
    precision: str
    version: str
    pictures: tuple[Picture, ...] = ()
    column_types: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        return super().of({**value, "pictures": tuple(Picture.of(one) for one in value.get("pictures", ()))})


@dataclass(frozen=True)
class Listed(_Answer):
    """A gallery in the list of those that a server has."""

    name: str
    count: int
    snapshot: int
    may_write: bool = False
    used_bytes: int | None = None
    quota_pictures: int | None = None
    quota_bytes: int | None = None


@dataclass(frozen=True)
class SavedSearch(_Answer):
    """A saved search. A picture fits it if it meets `where` and its score is at least `threshold`."""

    name: str
    words: str | None
    spec: Mapping[str, Any]
    k: int
    threshold: float
    saved: str  # ISO 8601
    where: str | None = None
    webhook: str | None = None  # the host
    matches: int = 0  # new pictures found so far


@dataclass(frozen=True)
class WriteResult(_Answer):
    """What came of a put or a delete, and the first snapshot that has it."""

    id: str
    done: str  # created, replaced, unchanged, deleted
    snapshot: int
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    caption: str | None = None


@dataclass(frozen=True)
class BatchResult(_Answer):
    """What came of one line of a batch. A line that failed has a status of 400 or more, and `detail` says why."""

    line: int
    status: int
    id: str | None = None
    done: str | None = None
    snapshot: int | None = None
    detail: str | None = None

    @property
    def ok(self) -> bool:
        return self.status < 400
