"""Pictures as requests name them, and how they are opened. Only files in the catalogue are read."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Any

from fastapi import UploadFile

from tapr.encoders.base import Encoder, Evidence
from tapr.errors import BadInput, BadOption
from tapr.gallery import Gallery
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Limits, read_bytes, sha256_of
from tapr.query.crop import cropped
from tapr.query.open_reference import stored_evidence
from tapr.query.reference import Reference
from tapr.server.fetching import Fetcher
from tapr.server.references import References
from tapr.server.traces import span
from tapr.store import uploads
from tapr.store.catalog import Entry

_ONE = "name one reference: a picture as reference, a gallery id as reference_id, a reference_key, or a reference_url"


class UnknownPicture(BadInput):
    """An unknown id, or one whose file is gone."""

    code = "unknown_picture"


@dataclass(frozen=True)
class Picture:
    """A picture as a request names it; it is opened once the whole question is known to be right."""

    upload: UploadFile | str | None = None  # a file, or base64
    id: str | None = None
    key: str | None = None
    crop: Any = None
    url: str | None = None

    def __post_init__(self) -> None:
        names = sum(name is not None for name in (self.upload, self.id, self.key, self.url))
        if names != 1:
            raise BadOption(_ONE, "reference", "conflicting_options" if names else "missing_option")

    @classmethod
    def of(cls, sent: Any) -> Picture:
        """Read what a form or an object in JSON names; text is a gallery id."""
        if isinstance(sent, str):
            return cls(id=sent)
        return cls(sent.reference, sent.reference_id, sent.reference_key, sent.crop, sent.reference_url)

    def sent_bytes(self) -> bytes:
        if not isinstance(self.upload, str):
            assert self.upload is not None
            return self.upload.file.read()
        try:
            return base64.b64decode(self.upload, validate=True)
        except (binascii.Error, ValueError):
            what = "reference is not base64: send the picture's bytes so, or as a file in multipart/form-data"
            raise BadOption(what, "reference") from None


@dataclass(frozen=True, eq=False)
class ServedPictures:
    """Opens pictures of a request: sent ones, those of this snapshot, and those that the server keeps or may fetch."""

    gallery: Gallery
    encoder: Encoder
    references: References
    fetcher: Fetcher
    limits: Limits

    def open(self, picture: Picture | Reference) -> Reference:
        if isinstance(picture, Reference):
            return picture
        if picture.key is not None:
            reference = self.references.get(picture.key)
        elif picture.id is not None:
            data = self.bytes_of(self.entry(picture.id))
            reference = replace(self.open_bytes(data, DEFAULT_LIMITS), id=picture.id)
        else:
            data = picture.sent_bytes() if picture.url is None else self.fetcher.fetch(picture.url)
            reference = self.open_bytes(data, self.limits)
        return cropped(reference, picture.crop)

    def open_bytes(self, data: bytes, limits: Limits) -> Reference:
        try:
            with span("encode"):
                return self.references.open(data, limits, self._stored)
        except BadImage as error:
            raise type(error)(f"the reference {error}") from None

    def entry(self, id_: str) -> Entry:
        entry = self.gallery.find(id_)
        if entry is None:
            raise UnknownPicture(f"the gallery has no picture with the id {id_[:200]!r}")
        return entry

    def bytes_of(self, entry: Entry) -> bytes:
        """Read a picture's file. Only files in the catalogue are read, and an upload only if it is undamaged."""
        try:
            data = read_bytes(entry.path)
            if entry.source == uploads.SOURCE and sha256_of(data) != uploads.sha256_named(entry.path):
                raise BadImage("is damaged (its checksum differs): put the picture again")
            return data
        except BadImage as error:
            raise UnknownPicture(f"the file of {entry.id!r} {error}") from None

    def _stored(self, sha256: str) -> Evidence | None:
        return stored_evidence(self.gallery, self.encoder, sha256)
