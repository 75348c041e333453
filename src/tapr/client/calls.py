"""Describe each request that can be sent, and how its answer is read. No connection in here."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from tapr.errors import BadInput
from tapr.options import SearchOptions
from tapr.query.spec import EditSpec
from tapr.result import ReferenceInfo, SearchResult, json_ready
from tapr.server.schemas import BatchResult, Galleries, Gallery, Listed, SavedSearch, SavedSearches
from tapr.store.write_operations import WriteResult

T = TypeVar("T")
OPTIONS = "\n".join(  # of a search, for the documentation of both clients
    f"        {name}: {field.description}"
    for name, field in SearchOptions.model_fields.items()
    if name not in ("reference", "edit", "factorizer")
)
PictureLike = bytes | str | os.PathLike[str]  # the bytes, or the path of a file


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    files: Mapping[str, bytes] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return what httpx is given beside method and path."""
        out: dict[str, Any] = {"params": dict(self.params), "headers": dict(self.headers)}
        if self.body is not None:
            out["content"] = self.body
        if self.form is not None:
            # also without a file as multipart, which is how the server reads forms of any size
            files = [(name, ("picture", data)) for name, data in (self.files or {}).items()]
            out["files"] = files + [(name, (None, text.encode())) for name, text in self.form.items()]
        return out


@dataclass(frozen=True)
class Calls:
    """What can be asked of one gallery, the first of the server or a named one. Both clients have these methods."""

    gallery: str | None = None

    @property
    def _root(self) -> str:
        return "/api" if self.gallery is None else f"/api/galleries/{quote(self.gallery, safe='')}"

    # reading

    def galleries(self) -> Call[list[Listed]]:
        """List the galleries of the server that the token may read."""
        return Call("GET", "/api/galleries", lambda body: Galleries.model_validate_json(body).galleries)

    def describe(self, *, limit: int = 0, offset: int = 0, where: str | None = None) -> Call[Gallery]:
        """Describe the gallery; with `limit`, list a page of its pictures too."""
        params = _given({"limit": limit, "offset": offset, "where": where})
        return Call("GET", f"{self._root}/gallery", Gallery.model_validate_json, params=params)

    def search(
        self,
        /,
        reference: PictureLike | None = None,
        edit: str | None = None,
        *,
        reference_id: str | None = None,
        reference_key: str | None = None,
        **options: Any,
    ) -> Call[SearchResult]:
        """Search by a picture (bytes or a path), a gallery id or a key, and what should be different.

        With like=True by the picture alone. Further references are named by {"reference_id": ...} or
        {"reference_key": ...}, and may have a "crop". The options of a search:

        """
        fields = {"edit": edit, "reference_id": reference_id, "reference_key": reference_key, **options}
        files = None if reference is None else {"reference": _bytes_of(reference)}
        return Call("POST", f"{self._root}/search", _json(SearchResult.from_dict), form=_form(fields), files=files)

    def open_reference(self, picture: PictureLike) -> Call[ReferenceInfo]:
        """Send a reference once; its `key` then names it."""
        files = {"reference": _bytes_of(picture)}
        return Call(
            "POST", f"{self._root}/references", _json(lambda value: ReferenceInfo(**value)), form={}, files=files
        )

    def rank(self, /, spec: EditSpec | Mapping[str, Any] | None, **options: Any) -> Call[SearchResult]:
        """Rank by a spec, without a factorizer; beside the options of `search`: reference_id or reference_key."""
        body = json.dumps(_given({"spec": spec, **options})).encode()
        return Call("POST", f"{self._root}/rank", _json(SearchResult.from_dict), body=body, headers=_JSON)

    def image(self, id_: str, *, size: int | None = None) -> Call[bytes]:
        """Return a picture's bytes; with `size`, a thumbnail's."""
        return Call("GET", f"{self._root}/images", bytes, params=_given({"id": id_, "size": size}))

    def collage(
        self,
        /,
        reference: PictureLike | None = None,
        edit: str | None = None,
        *,
        reference_id: str | None = None,
        reference_key: str | None = None,
        format: str = "jpg",
        **options: Any,
    ) -> Call[bytes]:
        """Draw a search as one picture to share, "jpg" or "png"; asked as by `search`."""
        call = self.search(reference, edit, reference_id=reference_id, reference_key=reference_key, **options)
        form = {**(call.form or {}), "format": format}
        return Call("POST", f"{self._root}/collage", bytes, form=form, files=call.files)

    def searches(self) -> Call[list[SavedSearch]]:
        """List the saved searches of the gallery."""
        return Call("GET", f"{self._root}/searches", lambda body: SavedSearches.model_validate_json(body).searches)

    def run_search(self, name: str) -> Call[SearchResult]:
        """Ask a saved search of the gallery as it is now."""
        return Call("GET", f"{self._search(name)}/results", _json(SearchResult.from_dict))

    def feed(self, name: str) -> Call[bytes]:
        """Return the new pictures that fit a saved search, as an Atom feed."""
        return Call("GET", f"{self._search(name)}/feed", bytes)

    # writing

    def save_search(self, /, name: str, *, webhook: str | None = None, **options: Any) -> Call[SavedSearch]:
        """Save a search: edit, text, like=True or spec; reference_id or reference_key; and the options of `search`."""
        body = json.dumps(_given({"webhook": webhook, **options})).encode()
        return Call("PUT", self._search(name), SavedSearch.model_validate_json, body=body, headers=_JSON)

    def delete_search(self, name: str) -> Call[None]:
        """Delete a saved search and its matches."""
        return Call("DELETE", self._search(name), lambda body: None)

    def put(
        self,
        id_: str,
        picture: PictureLike | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        path: str | None = None,
        key: str | None = None,
    ) -> Call[WriteResult]:
        """Add or replace a picture: its bytes or file, or where the server finds it. What is None stays as it is."""
        headers = {"Idempotency-Key": key or new_key()}
        options: dict[str, Any] = {"params": {"id": id_}}
        if picture is not None:
            fields = {"url": url, "path": path, "metadata": None if metadata is None else json.dumps(dict(metadata))}
            options |= {"form": _form(fields), "files": {"picture": _bytes_of(picture)}, "headers": headers}
        else:
            values = {"url": url, "path": path, "metadata": None if metadata is None else dict(metadata)}
            options |= {"body": json.dumps(_given(values)).encode(), "headers": {**headers, **_JSON}}
        return Call("PUT", f"{self._root}/images", TypeAdapter(WriteResult).validate_json, **options)

    def delete(self, id_: str, *, key: str | None = None) -> Call[WriteResult]:
        """Take a picture out of the gallery."""
        headers = {"Idempotency-Key": key or new_key()}
        return Call(
            "DELETE",
            f"{self._root}/images",
            TypeAdapter(WriteResult).validate_json,
            params={"id": id_},
            headers=headers,
        )

    def batch(self, lines: Iterable[Mapping[str, Any]], *, key: str | None = None) -> Call[list[BatchResult]]:
        """Do many at once: {"id": ..., "picture": bytes, "metadata": {...}} or {"op": "delete", "id": ...}."""
        body = b"".join(_line(line) for line in lines)
        headers = {"Idempotency-Key": key or new_key(), "Content-Type": "application/jsonl"}
        return Call("POST", f"{self._root}/images:batch", _results, body=body, headers=headers)

    def _search(self, name: str) -> str:
        return f"{self._root}/searches/{quote(name, safe='')}"


Calls.search.__doc__ = f"{Calls.search.__doc__}{OPTIONS}\n"
_JSON = {"Content-Type": "application/json"}


def new_key() -> str:
    return secrets.token_hex(16)


def _results(body: bytes) -> list[BatchResult]:
    return [BatchResult.model_validate_json(line) for line in body.splitlines() if line.strip()]


def _line(line: Mapping[str, Any]) -> bytes:
    """Write a line as JSON. Its picture may be given as bytes or as a file's path (a Path); JSON needs base64."""
    picture = line.get("picture")
    if isinstance(picture, (bytes, os.PathLike)):
        line = {**line, "picture": base64.b64encode(_bytes_of(picture)).decode()}
    return json.dumps(dict(line)).encode() + b"\n"


def _bytes_of(picture: PictureLike) -> bytes:
    if isinstance(picture, bytes):
        return picture
    try:
        return Path(picture).read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {os.fspath(picture)!r}: {(error.strerror or str(error)).lower()}") from None


def _json(read: Callable[[Any], T]) -> Callable[[bytes], T]:
    return lambda body: read(json.loads(body))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_ready(value) for name, value in values.items() if value is not None}


def _form(values: Mapping[str, Any]) -> dict[str, str]:
    """Write fields of a form as texts, objects as JSON."""
    out = {}
    for name, value in _given(values).items():
        out[name] = json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)
    return out
