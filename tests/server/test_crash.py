"""A server that is killed around a write: what was answered stands, what was not is not there half."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.store.verify import verify
from tests.pictures import flag, png
from tests.server.test_writing import small_gallery

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")]
CHILD = """
import os, signal, sys
import tapr.store.snapshot as snapshot
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.cli.serve import run_server
from tapr.server.settings import Settings

folder, where, after = sys.argv[1], sys.argv[2], int(sys.argv[3])
count = 0

def killing(function):
    def around(*arguments, **options):
        global count
        count += 1
        if count > after and where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **options)
        if count > after and where == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return around

if where in ("before", "after"):
    snapshot.Manifest.write = killing(snapshot.Manifest.write)
gallery = Gallery.open(folder, encoder=FakeEncoder())
run_server(gallery, Settings(port=0, allow_write=True), "target-only", as_json=True)
"""


def start(bank: Gallery, where: str, after: int) -> tuple[subprocess.Popen[str], http.client.HTTPConnection]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(bank.path), where, str(after)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert process.stdout is not None
    parts = urlsplit(json.loads(process.stdout.readline())["url"])
    return process, http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)


def put(connection: http.client.HTTPConnection, id_: str, data: bytes, key: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": "image/png"} | ({"Idempotency-Key": key} if key else {})
    connection.request("PUT", f"/api/images/{id_}", data, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.smoke
def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    bank = small_gallery(tmp_path)
    process, connection = start(bank, "", 0)
    told: list[str] = []

    def write() -> None:
        number = 0
        while True:
            id_ = f"p{number}"
            try:
                status, _ = put(connection, id_, png(flag("red", "blue", size=(20 + number, 20))))
            except (OSError, http.client.HTTPException):
                return
            assert status == 201
            told.append(id_)
            number += 1
            if number == 5:
                threading.Timer(0.05, os.kill, (process.pid, signal.SIGKILL)).start()

    write()
    end(process)
    assert len(told) >= 5
    ids = set(Gallery.open(bank.path, encoder=FakeEncoder()).ids())
    assert set(told) <= ids
    assert not verify(bank.path).damage


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_kill_at_the_moment_of_publishing(tmp_path: Path, where: str) -> None:
    bank = small_gallery(tmp_path)
    process, connection = start(bank, where, 1)
    assert put(connection, "a", png(flag("red")))[0] == 201
    with pytest.raises((OSError, http.client.HTTPException)):
        put(connection, "b", png(flag("blue")), "key")
    end(process)
    assert not verify(bank.path).damage
    expected = {"a", "black.png", "white.png", "yellow.png"} | ({"b"} if where == "after" else set())
    assert set(Gallery.open(bank.path, encoder=FakeEncoder()).ids()) == expected
    process, connection = start(bank, "", 0)
    status, done = put(connection, "b", png(flag("blue")), "key")  # as a client does that had no answer
    connection.close()
    end(process)
    assert (status, done.get("done")) == (201, "created"), done
    gallery = Gallery.open(bank.path, encoder=FakeEncoder())
    assert set(gallery.ids()) == expected | {"b"}
    gallery.sync()
    assert set(gallery.ids()) == expected | {"b"}
