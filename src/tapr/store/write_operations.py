"""Write operations on single pictures (put, delete), and their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.encoders.prepare import decode_for
from tapr.errors import BadInput
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Limits, one_line, sha256_of
from tapr.store.catalog import Catalog

ID_CHARACTERS, METADATA_BYTES = 1000, 64 * 2**10
Mistyped = Literal["refuse", "null"]  # null: the picture is kept without that value
What = Literal["created", "replaced", "unchanged", "deleted"]


class UnknownId(BadInput):
    """An operation on a picture that the gallery does not have."""

    code = "unknown_picture"


class KeyReused(BadInput):
    """An idempotency key that was used before with another request."""

    code = "key_reused"


@dataclass(frozen=True, eq=False)
class Content:
    """A picture file's bytes, decoded and prepared for the encoder."""

    data: bytes
    sha256: str
    width: int
    height: int
    pixels: NDArray[np.uint8]

    @classmethod
    def of(cls, data: bytes, encoder: Encoder, limits: Limits = DEFAULT_LIMITS) -> Content:
        """Decode bytes as an index run decodes a file."""
        try:
            decoded = decode_for(encoder, data, limits=limits)
        except BadImage as error:
            raise type(error)(f"the picture {error}") from None
        return cls(data, sha256_of(data), *decoded.size, decoded.views[0])


@dataclass(frozen=True, eq=False)
class Put:
    """Add or replace the picture with this id. None keeps the current value."""

    id: str
    content: Content | None = None
    metadata: Mapping[str, Any] | None = None
    key: str | None = None  # idempotency key: a repeated request is applied once
    request: str = ""  # hash of the request
    mistyped: Mistyped = "refuse"  # what to do with a value that is not of its column's type

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", checked_id(self.id))
        if self.metadata is not None:
            object.__setattr__(self, "metadata", checked_metadata(self.metadata))


@dataclass(frozen=True)
class Delete:
    id: str
    key: str | None = None
    request: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", checked_id(self.id))


Operation = Put | Delete


@dataclass(frozen=True)
class WriteResult:
    """The result of a write operation, and the first snapshot that contains it."""

    id: str
    done: What
    snapshot: int
    width: int | None = None
    height: int | None = None
    sha256: str | None = None  # of the picture's bytes
    caption: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WriteResult:
        return cls(**json.loads(text))


Outcome = WriteResult | BadInput  # of one operation; an invalid one does not stop the others


def earlier_result(catalog: Catalog, key: str | None, request: str) -> Outcome | None:
    """Return the stored result of the same request under the same idempotency key."""
    answer = catalog.written.answer(key) if key else None
    if answer is None:
        return None
    if answer.request != request:
        return KeyReused("this idempotency key came with another request before: use a new key for each request")
    return WriteResult.from_json(answer.text)


def request_hash(*parts: Any) -> str:
    """A hash of the request, independent of its form."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def checked_id(id_: Any) -> str:
    if not isinstance(id_, str) or not id_:
        raise BadInput("a picture needs an id: a text that is not empty")
    if len(id_) > ID_CHARACTERS:
        raise BadInput(f"the id has {len(id_):,} characters, more than the {ID_CHARACTERS:,} allowed")
    if "\0" in id_ or not _is_text(id_):
        raise BadInput("the id holds a zero character or half of a surrogate pair, which no id can")
    return id_


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Check metadata: null means no value. NaN and infinity are refused: JSON has neither."""
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) and name for name in metadata):
        raise BadInput('metadata must be a JSON object of named values, such as {"price": 40}')
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"the metadata cannot be kept as JSON: {one_line(error)}") from None
    if not _is_text(text) or "\0" in text:
        raise BadInput("the metadata holds a zero character or half of a surrogate pair, which is no text")
    if len(text.encode()) > METADATA_BYTES:
        raise BadInput(f"the metadata of one picture may have {METADATA_BYTES:,} bytes as JSON, not {len(text):,}")
    return {name: value for name, value in metadata.items() if value is not None}


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
