"""Threads of a server share few memory arenas."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

COUNT_ARENAS = """
import ctypes, re, sys, threading
from tapr.utils.threads import share_memory_arenas
if sys.argv[1] == "shared":
    share_memory_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
barrier = threading.Barrier(16)
def use():
    barrier.wait()
    libc.malloc(1000)
    barrier.wait()
threads = [threading.Thread(target=use) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
print(len(re.findall("<heap nr", open(sys.argv[2]).read())))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives each thread an arena of its own")
def test_threads_share_arenas(tmp_path: Path) -> None:
    def arenas(how: str) -> int:
        command = [sys.executable, "-c", COUNT_ARENAS, how, str(tmp_path / "info.xml")]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert arenas("shared") <= 2 < arenas("as it is")
