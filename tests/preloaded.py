"""A process that has loaded tapr once and forks for each command: loading takes longer than most commands do.

Each command still has a process of its own, with its own arguments, folder, environment and exit status. Elsewhere than
on Linux, where forking a process with loaded libraries may fail, each command starts an interpreter as usual.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TAPR = "from tapr.cli.main import main; main()"
_FORKS = sys.platform == "linux"


class Preloaded:
    def __init__(self, address: str) -> None:
        self._address = address

    def run(self, code: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Python code in a process of its own."""
        command = [*_client(self._address), code] if _FORKS else [sys.executable, "-c", code]
        return subprocess.run(command, cwd=cwd, env=dict(env), capture_output=True, text=True, check=False)

    def install(self, command: Path) -> None:
        """An executable file that is `tapr`."""
        command.parent.mkdir(parents=True, exist_ok=True)
        start = [*_client(self._address), TAPR] if _FORKS else [sys.executable, "-m", "tapr.cli.main"]
        command.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in start) + ' "$@"\n')
        command.chmod(0o755)


def _client(address: str) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, "ask", address]


@contextmanager
def preloaded() -> Iterator[Preloaded]:
    if not _FORKS:
        yield Preloaded("")
        return
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "serve", address]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()  # it listens
            try:
                yield Preloaded(address)
            finally:
                server.kill()


def serve(address: str) -> None:
    import tapr.cli.eval
    import tapr.cli.eval_paper
    import tapr.cli.factorize
    import tapr.encoders.fake
    import tapr.evaluate.report
    import tapr.evaluate.session  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            child = os.fork()
            if child == 0:
                listener.close()
                _become(json.loads(data), streams)
            for stream in streams:
                os.close(stream)
            _, status = os.waitpid(child, 0)
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(asked: Mapping[str, Any], streams: list[int]) -> None:
    """The child: never returns."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["tapr", *asked["arguments"]]
    status: Any = 0
    try:
        exec(asked["code"], {"__name__": "__main__"})
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def ask(address: str, code: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        asked = {"code": code, "arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
        return int(connection.recv(64))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    found = ask(sys.argv[2], sys.argv[3], sys.argv[4:])
    if found < 0:  # ended by a signal, as this process is to be
        os.kill(os.getpid(), -found)
    sys.exit(found)
