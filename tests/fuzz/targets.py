"""What the fuzzers call: each target takes any bytes and raises only where tapr has a defect.

A user's mistake (BadInput) is a right answer. benchmarks/fuzz.py runs these for minutes with feedback from coverage;
test_corpus.py replays the kept corpus in every test run.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.factorize.answers import read_answer
from tapr.factorize.caption import edit_caption
from tapr.factorize.grammar import read_edit
from tapr.factorize.grounded import read
from tapr.factorize.seeing import Seen
from tapr.factorize.tags import Tags
from tapr.factorize.wishes import read_wish
from tapr.gallery import Gallery
from tapr.images.decode import BadImage, Limits, decode_sized
from tapr.images.frame import Frame
from tapr.query.spec import EditSpec, Weights
from tapr.store.filters import to_sql
from tests.pictures import SOME_FLAGS, flag, png, write_flags

CORPUS = Path(__file__).parent / "corpus"
_LIMITS = Limits(bytes=2**20, pixels=1_000_000, memory=2**26)
_COLUMNS: Any = {"price": "number", "name": "text", "new": "boolean", "since": "date", "picture.width": "text"}


def pictures(data: bytes) -> None:
    """Any bytes -> an upright RGB picture that a tower can be shown, or one sentence."""
    try:
        image, (width, height) = decode_sized(data, side=16, limits=_LIMITS)
    except BadImage as error:
        _one_sentence(error)
        return
    assert image.mode == "RGB"
    assert 0 < image.width * image.height <= width * height <= _LIMITS.pixels
    for fit in ("crop", "pad"):
        assert Frame(16, fit).apply(image).shape == (16, 16, 3)


def specs(data: bytes) -> None:
    """Specs, weights, a model's answers and filters, all read from text that may be anything."""
    text = data.decode("utf-8", "surrogateescape")
    with _mistakes():
        spec = EditSpec.from_json(data)
        assert EditSpec.from_json(spec.to_json()) == spec
    with _mistakes():
        spec = EditSpec.from_json(text)
        assert EditSpec.from_dict(spec.to_dict()) == spec
    with _mistakes():
        Weights.parse(text)
    with _mistakes():
        read_answer(text)
    with _mistakes():
        condition, parameters = to_sql(text, _COLUMNS)
        assert condition.count("?") == len(parameters)


def edits(data: bytes) -> None:
    """A caption and an edit, apart at the first line break, through the grammar and the caption editor."""
    caption, _, edit = data.decode("utf-8", "replace").partition("\n")
    caption, edit = caption[:400], edit[:1000]
    reading = read_edit(edit)
    for sure in (True, False):
        edit_caption(caption, reading, sure=sure)
        with _mistakes():
            made = read(Seen(caption or "a picture", 0.9 if sure else 0.1, sure), Tags("", {}, {}), edit)
            assert EditSpec.from_json(made.spec.to_json()) == made.spec
    read_wish(edit, caption)


_ROUTES = (
    "/api/rank",
    "/api/search",
    "/api/factorize",
    "/api/heatmap",
    "/api/images/",
    "/api/gallery",
    "/api/references/",
)


def api(data: bytes) -> None:
    """The first byte names the route, the second how it is asked; no answer is a 5xx, every refusal one sentence."""
    client, key = _client()
    route = _ROUTES[data[0] % len(_ROUTES)] if data else _ROUTES[0]
    way, body = (data[1] % 4 if len(data) > 1 else 0), data[2:]
    text = body.decode("utf-8", "replace")
    if way == 0:
        reply = client.post(route, content=body, headers={"content-type": "application/json"})
    elif way == 1:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = {"spec": {"target": text, "add": text.split()[:5]}, "where": text[:50]}
        if isinstance(value, dict):
            value.setdefault("reference_key", key)
        reply = client.post(route, content=json.dumps(value), headers={"content-type": "application/json"})
    elif way == 2:
        reply = client.post(route, data={"edit": text[:200]}, files={"reference": ("p.png", body or png(flag("red")))})
    else:
        head, _, rest = text.partition("\n")
        values = dict(part.partition("=")[::2] for part in rest.split("&"))
        reply = client.get(route + _quoted(head[:200]), params={"reference_key": key, **values})
    assert reply.status_code < 500, (reply.status_code, reply.text[:500])
    if reply.status_code >= 400:
        assert reply.headers["content-type"] == "application/problem+json", reply.headers
        assert "\n" not in json.loads(reply.content)["detail"] or "\n" in text


TARGETS: dict[str, Callable[[bytes], None]] = {"pictures": pictures, "specs": specs, "edits": edits, "api": api}


def seeds(name: str) -> list[Path]:
    return sorted((CORPUS / name).iterdir())


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def _one_sentence(error: BadInput, quotes: bool = False) -> None:
    assert str(error), "a refusal without a reason"
    assert quotes or "\n" not in str(error), str(error)  # what is quoted may itself have several lines


@contextlib.contextmanager
def _mistakes() -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        _one_sentence(error, quotes=True)


@cache
def _client() -> tuple[Any, str]:
    """A server on ten flags, and the key of a reference that it keeps."""
    from starlette.testclient import TestClient

    from tapr.server.app import create_app

    folder = Path(tempfile.mkdtemp(prefix="tapr-fuzz-"))
    write_flags(folder / "p", SOME_FLAGS)
    gallery = Gallery.build(folder / "g", folder / "p", FakeEncoder())
    client = TestClient(
        create_app(gallery, factorizer="grounded"), base_url="http://127.0.0.1:8765", raise_server_exceptions=False
    )
    client.__enter__()
    files = {"reference": ("p.png", png(flag("red", "blue")))}
    reply = client.post("/api/factorize", data={"edit": "in green"}, files=files)
    return client, str(reply.json()["reference"]["key"])
