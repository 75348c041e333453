"""`tapr serve` as a process: where it listens, how it stops, and the examples against it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tapr.cli.serve import serve
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tests.pictures import flag, png

EXAMPLES = Path(__file__).parents[2] / "examples"
# the fake encoder is not on the command line: the process gives the gallery its own, and then does what the verb does
RUN = """
import sys
from tapr.cli.serve import run_server
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.server.settings import Settings
settings = Settings(port=0, token=sys.argv[2] or None)
run_server(Gallery.open(sys.argv[1], encoder=FakeEncoder()), settings, "target-only", as_json=True)
"""
TOKEN = "a long enough secret"


class Process:
    def __init__(self, gallery: Gallery, token: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(gallery.path), token],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def rank(self) -> Any:
        body = {"spec": {"target": "blue", "add": ["blue"]}, "reference_id": "red-green.png"}
        request = urllib.request.Request(
            f"{self.url}/api/rank", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            answer: dict[str, Any] = json.load(reply)
        del answer["seconds"]
        return answer

    def stop(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate()
        return self.process.returncode


@pytest.fixture(scope="module")
def guarded(gallery: Gallery) -> Iterator[Process]:
    process = Process(gallery, TOKEN)
    yield process
    process.stop(signal.SIGTERM)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "a reference.png"
    path.write_bytes(png(flag("red", "white")))
    return path


@pytest.mark.faults
def test_a_killed_server_answers_the_same_when_it_is_back(gallery: Gallery) -> None:
    first = Process(gallery)
    answer = first.rank()
    first.stop(signal.SIGKILL)
    second = Process(gallery)
    assert second.rank() == answer
    assert second.stop(signal.SIGTERM) in (0, -signal.SIGTERM), "told to stop, it ends by itself"


def test_it_listens_on_loopback_only(guarded: Process) -> None:
    port = int(guarded.url.rpartition(":")[2])
    assert guarded.url.startswith("http://127.0.0.1:")
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # taken if it listened on all addresses


def test_the_python_example(guarded: Process, reference: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "client.py"), guarded.url, str(reference), "blue"]
    done = subprocess.run([*command, TOKEN], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert "blue" in lines[0]
    refused = subprocess.run([*command, "wrong"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "this token is unknown here" in refused.stderr
    assert len((EXAMPLES / "client.py").read_text().splitlines()) <= 32


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example(guarded: Process, reference: Path) -> None:
    command = [str(EXAMPLES / "search.sh"), str(reference), "blue; no ,red", guarded.url]
    environment = {**os.environ, "TAPR_TOKEN": TOKEN}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    answer = json.loads(done.stdout)
    assert len(answer["hits"]) == 5
    assert answer["spec"]["target"] == "blue; no ,red"


def test_a_token_is_asked_for(guarded: Process) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        guarded.rank()
    assert caught.value.code == 401
    caught.value.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "give a secret with --token"),
        (["--port", "99999"], "the port must be from 0 to 65535"),
        (["--host", "198.51.100.7", "--token", TOKEN], "cannot listen on 198.51.100.7"),
        (["--max-upload", "0"], "--max-upload must be 1 or more"),
    ],
)
def test_impossible_options_get_one_sentence(gallery: Gallery, options: list[str], words: str) -> None:
    result = CliRunner().invoke(serve, ["-g", str(gallery.path), *options])
    assert isinstance(result.exception, BadInput)
    assert words in str(result.exception)


def test_a_port_that_is_taken_is_said_at_once(gallery: Gallery) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(serve, ["-g", str(gallery.path), "--port", port])
    assert isinstance(result.exception, BadInput)
    assert "choose another with --port" in str(result.exception)


def test_a_shard_that_is_cut_short_in_place_costs_answers_not_the_server(tmp_path: Path) -> None:
    """Reading past the end of a mapped file would end the process; the sizes are looked at before every sweep."""
    for colour in ("red", "blue", "green"):
        flag(colour).save(tmp_path / f"{colour}.png")
    bank = Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder())
    process = Process(bank)
    ask = json.dumps({"spec": {"target": "blue"}, "reference_id": "red.png"}).encode()
    request = urllib.request.Request(f"{process.url}/api/rank", ask, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        assert len(json.load(reply)["hits"]) == 2
    for shard in bank.path.glob("*.npy"):
        os.truncate(shard, 200)
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        with caught.value as refused:
            assert refused.code == 503
            assert str(tmp_path) not in refused.read().decode()
    assert process.process.poll() is None
    process.stop(signal.SIGTERM)
