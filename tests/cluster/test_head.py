"""A head of Ray that is killed: `tapr serve --ray` answers 503, and answers again once there is a head."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tapr
from tests.cluster.conftest import QUICK, STORE
from tests.cluster.galleries import build

pytestmark = [pytest.mark.ray, pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")]

SECONDS = 120  # only a test that fails waits so long
ENVIRONMENT = {
    **QUICK,
    "RAY_agent_register_timeout_ms": "120000",  # on a busy machine
    "PYTHONPATH": str(Path(tapr.__file__).parents[1]),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def descendants(process: int) -> list[int]:
    """A process and all that it started, by /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents.setdefault(int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []).append(
                int(entry.name)
            )
    found = [process]
    for one in found:
        found += parents.get(one, [])
    return found


@contextmanager
def head(port: int, folder: Path) -> Iterator[None]:
    """A head that is killed at the end, with all its processes, and says goodbye to nobody."""
    started = start_head(port, folder) or start_head(port, folder)  # Ray gives up on a slow start after 30 seconds
    assert started is not None, (folder / "head.log").read_text()
    try:
        yield
    finally:
        for process in descendants(started.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        started.wait()


def start_head(port: int, folder: Path) -> subprocess.Popen[bytes] | None:
    with (folder / "head.log").open("w") as log:
        started = subprocess.Popen(
            [
                sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
                "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2", f"--object-store-memory={STORE}",
                "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}",
            ],
            env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log,
        )  # fmt: skip
    while started.poll() is None:
        if "Ray runtime started" in (folder / "head.log").read_text():
            return started
        time.sleep(0.1)
    return None


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "tapr", *map(str, words)]


def run(*words: str | Path) -> None:
    done = subprocess.run(
        command(*words), env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def answer(port: int) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/search", b"text=red&k=5", timeout=60) as reply:
            return int(reply.status), [(hit["id"], hit["score"]) for hit in json.load(reply)["hits"]]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {**json.load(error), "retry": error.headers["Retry-After"]}


@pytest.mark.parametrize("soon", [False, True], ids=["after the server", "before the server has ended"])
def test_a_killed_head_is_503_and_a_new_one_is_answers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, soon: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray ends a process that has missed its head for so long; one that is there sooner refuses the process
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "600" if soon else "5")
    gallery = build(tmp_path)
    ray_port, port = free_port(), free_port()
    address = f"127.0.0.1:{ray_port}"
    folders = iter(tmp_path_factory.mktemp("r") for _ in range(2))  # short: Ray's sockets lie in it
    with head(ray_port, next(folders)):
        run("cluster", "start", "-g", gallery.path, "--ray", address, "--groups", "2")
        server = subprocess.Popen(
            command("serve", "-g", gallery.path, "--ray", address, "--port", str(port)),
            env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        before = once(port, 200)
    try:
        if not soon:
            refused = once(port, 503, by="cannot be reached")  # the supervisor
            assert (refused["status"], bool(refused["retry"])) == (503, True)
        with head(ray_port, next(folders)):
            run("cluster", "start", "-g", gallery.path, "--ray", address, "--groups", "2")
            assert once(port, 200) == before
    finally:
        server.send_signal(signal.SIGTERM)
        _, told = server.communicate(timeout=SECONDS)
    assert "Traceback" not in told


def once(port: int, wanted: int, by: str = "") -> Any:
    """The first answer with this status, and these words in its detail."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):  # nobody listens yet, or the dying server had the request
            status, said = answer(port)
            if status == wanted and (not by or by in said["detail"]):
                return said
        time.sleep(0.2)
    raise AssertionError(f"no {wanted} within {SECONDS} seconds")
