"""The program that is disturbed: tapr itself, with small shards and a commit after every few pictures.

It waits for lines of JSON on stdin, {"command": [...], "folder": ..., "at": ..., "kind": ...}, and runs each command in
a process of its own, forked from here: that spares a start of Python per run. Without "at" nothing goes wrong. The
answer is a line, too: how the process ended, what it said on stderr, and how many operations were counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from typing import Any

# what a run needs is loaded before the fork
from tapr.cli import backup, index, repair, restore  # noqa: F401
from tapr.cli import main as cli
from tapr.encoders import fake  # noqa: F401
from tapr.index import encode
from tapr.store import checksums, layout


def make_small() -> None:
    """Eight rows per shard, three per checksum, a commit every four pictures: many places to fail at."""
    layout.SHARD_BYTES = 9 * 32 * 2 * 8
    checksums.CHUNK_BYTES = 9 * 32 * 2 * 3
    encode.BATCH = 4
    encode.COMMIT_SECONDS = 0.0


def run(request: dict[str, Any], said: int, counted: int) -> int:
    """In the forked process."""
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    layer = ctypes.CDLL(None) if "at" in request else None
    if layer is not None:
        layer.fault_begin(request["folder"].encode(), ctypes.c_long(request["at"]), request["kind"].encode())
    sys.argv = ["tapr", *request["command"]]
    code = 70
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    if layer is not None:
        os.write(counted, str(layer.fault_operations()).encode())
    return code


def main() -> None:
    make_small()
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as counted:
            pid = os.fork()
            if pid == 0:
                os._exit(run(json.loads(line), said.fileno(), counted.fileno()))
            _, status = os.waitpid(pid, 0)
            said.seek(0)
            counted.seek(0)
            ended = {
                "code": os.waitstatus_to_exitcode(status),
                "said": said.read().decode(errors="replace"),
                "operations": int(counted.read() or 0),
            }
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main()
