"""A client that a generator made from the description, against a running server."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapr.server.settings import Settings
from tests.server.conftest import ColourFactorizer, served
from tests.server.test_writing import small_gallery

pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")

pytestmark = pytest.mark.toolchain

USE = """
import io, sys
from tapr_client import Client
from tapr_client.api.default import (
    batch,
    delete_image,
    galleries,
    gallery,
    gallery_put_image,
    gallery_search,
    image,
    put_image,
    rank,
    search,
)
from tapr_client.models import EditSpec, PutForm, PutRequest, PutRequestMetadataType0, RankRequest, SearchForm
from tapr_client.models import Problem
from tapr_client.types import File

client = Client(sys.argv[1])
assert gallery.sync(client=client).count == 30
picture = image.sync("red-blue.png", client=client)
data = picture.payload.read()
upload = lambda: File(io.BytesIO(data), "x.png", "image/png")
found = search.sync(client=client, body=SearchForm(reference=upload(), edit="green", k=3))
assert len(found.hits) == 3, found
again = rank.sync(client=client, body=RankRequest(spec=found.spec, reference_key=found.reference.key, k=2, offset=1))
assert [hit.rank for hit in again.hits] == [2, 3]
wrong = rank.sync(client=client, body=RankRequest(spec=EditSpec(" "), reference_id="red-blue.png"))
assert isinstance(wrong, Problem) and wrong.status == 400
(listed,) = galleries.sync(client=client).galleries
assert gallery_search.sync(listed.name, client=client, body=SearchForm(text="green", k=2)).hits
refused = put_image.sync("new", client=client, body=upload())
assert isinstance(refused, Problem) and refused.status == 403, refused
shop = Client(sys.argv[2])
(listed,) = galleries.sync(client=shop).galleries
form = PutForm(picture=upload(), metadata='{"price": 4}')
made = put_image.sync("new", client=shop, body=form, idempotency_key="one")
assert made.done == "created", made
assert gallery_put_image.sync(listed.name, "newer", client=shop, body=upload()).done == "created"
price = PutRequest(metadata=PutRequestMetadataType0.from_dict({"price": 5}))
assert put_image.sync("new", client=shop, body=price).done == "replaced"
assert delete_image.sync("new", client=shop).done == "deleted"
lines = File(io.BytesIO(b'{"op": "delete", "id": "newer"}'))
assert b'"done": "deleted"' in batch.sync(client=shop, body=lines).payload.read()
print("fine")
"""


@pytest.fixture
def written(tmp_path: Path) -> Iterator[str]:
    settings = Settings(port=0, allow_write=True)
    with served(small_gallery(tmp_path / "shop"), ColourFactorizer(), settings) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_it_is_made_without_a_warning_finds_pictures_and_puts_some(address: str, written: str, tmp_path: Path) -> None:
    with urllib.request.urlopen(f"{address}/openapi.json") as reply:
        (tmp_path / "openapi.json").write_bytes(reply.read())
    generate = ["generate", "--path", str(tmp_path / "openapi.json"), "--output-path", str(tmp_path / "client")]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # the generator runs ruff
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *generate],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in made.stdout + made.stderr
    used = subprocess.run(
        [sys.executable, "-c", USE, address, written],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path / "client")},
    )  # fmt: skip
    assert used.stdout == "fine\n", used.stderr
