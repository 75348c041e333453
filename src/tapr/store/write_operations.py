"""Orders: put this picture, delete that one. What an order asks for, and what came of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Limits, decode_sized, one_line, sha256_of

ID_CHARACTERS, METADATA_BYTES = 1000, 64 * 2**10
What = Literal["created", "replaced", "unchanged", "deleted"]


class UnknownId(BadInput):
    """An order for a picture that the gallery does not have."""


class KeyReused(BadInput):
    """An idempotency key that came with another request before."""


@dataclass(frozen=True, eq=False)
class Content:
    """A picture file's bytes, read and readied for the encoder."""

    data: bytes
    sha256: str
    width: int
    height: int
    pixels: NDArray[np.uint8]

    @classmethod
    def of(cls, data: bytes, encoder: Encoder, limits: Limits = DEFAULT_LIMITS) -> Content:
        """As an index run reads a file."""
        try:
            image, (width, height) = decode_sized(data, side=encoder.card.image_size, limits=limits)
            return cls(data, sha256_of(data), width, height, encoder.prepare(image))
        except BadImage as error:
            raise type(error)(f"the picture {error}") from None
        except Exception as error:  # whatever one file does to a decoder or an encoder is that file's failure
            raise BadImage(f"the picture cannot be prepared ({one_line(error)})") from None


@dataclass(frozen=True, eq=False)
class Put:
    """Make the picture of this id what is said here. What is None stays as it is."""

    id: str
    content: Content | None = None
    metadata: Mapping[str, Any] | None = None
    key: str | None = None  # of idempotency: the same again under one key is done once
    request: str = ""  # what was asked under the key, as a hash

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
    """What came of an order, and the first snapshot that has it."""

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


def request_hash(*parts: Any) -> str:
    """Of what was asked, however it was written down."""
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
    """As a line of a table would give it: null and NaN are no value."""
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) and name for name in metadata):
        raise BadInput('metadata must be a JSON object of named values, such as {"price": 40}')
    try:
        given = {name: _finite(value) for name, value in metadata.items()}
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"the metadata cannot be kept as JSON: {one_line(error)}") from None
    if not _is_text(text) or "\0" in text:
        raise BadInput("the metadata holds a zero character or half of a surrogate pair, which is no text")
    if len(text.encode()) > METADATA_BYTES:
        raise BadInput(f"the metadata of one picture may have {METADATA_BYTES:,} bytes as JSON, not {len(text):,}")
    return {name: value for name, value in given.items() if value is not None}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return value


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
