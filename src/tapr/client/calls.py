"""What is sent for each thing that can be asked, and how its answer is read. No connection in here."""

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

from tapr.client.answers import BatchResult, Gallery, Listed, SavedSearch, WriteResult
from tapr.errors import BadInput
from tapr.options import SearchOptions
from tapr.query.spec import EditSpec
from tapr.result import ReferenceInfo, SearchResult, json_ready

T = TypeVar("T")
OPTIONS = "\n".join(  # of a search, for the documentation of both clients
    f"        {name}: {field.description}"
    for name, field in SearchOptions.model_fields.items()
    if name not in ("reference", "edit", "factorizer")
)
PictureLike = bytes | str | os.PathLike[str]  # the bytes, or the path of a file


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    files: Mapping[str, bytes] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """Of one gallery: the first of the server, or the one of this name."""

    gallery: str | None = None

    @property
    def _root(self) -> str:
        return "/api" if self.gallery is None else f"/api/galleries/{quote(self.gallery, safe='')}"

    def galleries(self) -> Call[list[Listed]]:
        return Call("GET", "/api/galleries", lambda body: [Listed.of(one) for one in json.loads(body)["galleries"]])

    def describe(self, limit: int, offset: int, where: str | None) -> Call[Gallery]:
        params = _given({"limit": limit, "offset": offset, "where": where})
        return Call("GET", f"{self._root}/gallery", _json(Gallery.of), params=params)

    def search(
        self,
        reference: PictureLike | None,
        edit: str | None,
        reference_id: str | None,
        reference_key: str | None,
        options: Mapping[str, Any],
    ) -> Call[SearchResult]:
        fields = {"edit": edit, "reference_id": reference_id, "reference_key": reference_key, **options}
        files = None if reference is None else {"reference": _bytes_of(reference)}
        return Call("POST", f"{self._root}/search", _json(SearchResult.from_dict), form=_form(fields), files=files)

    def collage(
        self,
        reference: PictureLike | None,
        edit: str | None,
        reference_id: str | None,
        reference_key: str | None,
        format_: str,
        options: Mapping[str, Any],
    ) -> Call[bytes]:
        call = self.search(reference, edit, reference_id, reference_key, options)
        form = {**(call.form or {}), "format": format_}
        return Call("POST", f"{self._root}/collage", bytes, form=form, files=call.files)

    def searches(self) -> Call[list[SavedSearch]]:
        def read(body: bytes) -> list[SavedSearch]:
            return [SavedSearch.of(one) for one in json.loads(body)["searches"]]

        return Call("GET", f"{self._root}/searches", read)

    def save_search(self, name: str, options: Mapping[str, Any]) -> Call[SavedSearch]:
        body = json.dumps(_given(options)).encode()
        return Call("PUT", self._search(name), _json(SavedSearch.of), body=body, headers=_JSON)

    def run_search(self, name: str) -> Call[SearchResult]:
        return Call("GET", f"{self._search(name)}/results", _json(SearchResult.from_dict))

    def feed(self, name: str) -> Call[bytes]:
        return Call("GET", f"{self._search(name)}/feed", bytes)

    def delete_search(self, name: str) -> Call[None]:
        return Call("DELETE", self._search(name), lambda body: None)

    def _search(self, name: str) -> str:
        return f"{self._root}/searches/{quote(name, safe='')}"

    def open_reference(self, picture: PictureLike) -> Call[ReferenceInfo]:
        files = {"reference": _bytes_of(picture)}
        return Call(
            "POST", f"{self._root}/references", _json(lambda value: ReferenceInfo(**value)), form={}, files=files
        )

    def rank(self, spec: EditSpec | Mapping[str, Any] | None, options: Mapping[str, Any]) -> Call[SearchResult]:
        body = json.dumps(_given({"spec": spec, **options})).encode()
        return Call("POST", f"{self._root}/rank", _json(SearchResult.from_dict), body=body, headers=_JSON)

    def image(self, id_: str, size: int | None) -> Call[bytes]:
        return Call("GET", f"{self._root}/images", bytes, params=_given({"id": id_, "size": size}))

    def put(
        self,
        id_: str,
        picture: PictureLike | None,
        metadata: Mapping[str, Any] | None,
        url: str | None,
        path: str | None,
        key: str | None,
    ) -> Call[WriteResult]:
        headers = {"Idempotency-Key": key or new_key()}
        options: dict[str, Any] = {"params": {"id": id_}}
        if picture is not None:
            fields = {"url": url, "path": path, "metadata": None if metadata is None else json.dumps(dict(metadata))}
            options |= {"form": _form(fields), "files": {"picture": _bytes_of(picture)}, "headers": headers}
        else:
            asked = {"url": url, "path": path, "metadata": None if metadata is None else dict(metadata)}
            options |= {"body": json.dumps(_given(asked)).encode(), "headers": {**headers, **_JSON}}
        return Call("PUT", f"{self._root}/images", _json(WriteResult.of), **options)

    def delete(self, id_: str, key: str | None) -> Call[WriteResult]:
        headers = {"Idempotency-Key": key or new_key()}
        return Call("DELETE", f"{self._root}/images", _json(WriteResult.of), params={"id": id_}, headers=headers)

    def batch(self, lines: Iterable[Mapping[str, Any]], key: str | None) -> Call[list[BatchResult]]:
        body = b"".join(_line(line) for line in lines)
        headers = {"Idempotency-Key": key or new_key(), "Content-Type": "application/jsonl"}
        return Call("POST", f"{self._root}/images:batch", _results, body=body, headers=headers)


_JSON = {"Content-Type": "application/json"}


def new_key() -> str:
    return secrets.token_hex(16)


def _results(body: bytes) -> list[BatchResult]:
    return [BatchResult.of(json.loads(line)) for line in body.splitlines() if line.strip()]


def _line(line: Mapping[str, Any]) -> bytes:
    """A picture may be given as bytes or as a file's path (a Path); JSON needs it in base64."""
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


def _json(read: Callable[[Mapping[str, Any]], T]) -> Callable[[bytes], T]:
    return lambda body: read(json.loads(body))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_ready(value) for name, value in values.items() if value is not None}


def _form(values: Mapping[str, Any]) -> dict[str, str]:
    """Form fields are texts: objects go as JSON."""
    out = {}
    for name, value in _given(values).items():
        out[name] = json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)
    return out
