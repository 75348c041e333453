"""The process that decodes pictures for workers.py: a request per line in, an answer per line out, both JSON.

The picture's bytes come in a file in memory, and pixels go back in it. Nothing that this process says is trusted.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tapr.images.decode import BadImage, Limits, NoRoomToDecode, PictureTooLarge, View, decode_views, load_readers
from tapr.images.frame import Frame
from tapr.utils.amounts import file_size

LEFT_BEHIND = 96 * 2**20  # bytes of address space that a decoding may leave: more, and the process ends
MAX_ANSWER_BYTES = 512 * 2**20
_MARGIN = 2**20


def main() -> None:
    """Answer requests until the input ends."""
    file = int(sys.argv[1])
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is reserved for answers
    _confine()
    at_rest = address_space()
    for line in requests:
        request = json.loads(line)
        data = os.pread(file, request["bytes"], 0)
        before = address_space()
        _load_readers(data)
        at_rest += address_space() - before
        answer = _facts(file, data, request) if "sidecars" in request else _answer(file, data, request)
        del data
        answer["last"] = address_space() > at_rest + LEFT_BEHIND
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if answer["last"]:
            return


def _confine() -> None:
    """Set the limits that hold for the whole life of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which then closes the input
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # Limits decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_ANSWER_BYTES, MAX_ANSWER_BYTES))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where the machine has no memory left, this process goes first, not its parent


def _load_readers(data: bytes) -> None:
    """Load the libraries for this file before memory is limited, and let them decode in one thread each."""
    with suppress(BadImage):  # decode_views says it again
        load_readers(data)
    if "PIL.AvifImagePlugin" in sys.modules:
        sys.modules["PIL.AvifImagePlugin"].DEFAULT_MAX_THREADS = 1  # type: ignore[attr-defined]
    if "pillow_heif" in sys.modules:
        sys.modules["pillow_heif"].options.DECODE_THREADS = 1


def address_space() -> int:
    """Return the bytes of address space in use; 0 where the system does not say, and RLIMIT_AS does not hold."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 0


def _peak() -> int:
    """Return the most bytes of address space that this process has had; 0 where the system does not say."""
    with suppress(OSError), open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmPeak"))
    return 0


@contextmanager
def _limited(limits: Limits) -> Iterator[None]:
    """Lower the limits of memory and processor time while one picture is decoded."""
    memory, time_ = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)
    used = address_space()
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory, memory[1]))
    times = os.times()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(times.user + times.system + limits.seconds), time_[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, memory)
        resource.setrlimit(resource.RLIMIT_CPU, time_)


def _answer(file: int, data: bytes, request: dict[str, Any]) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    views = [
        View(side, longest, Frame(*frame) if frame else None, png) for side, longest, frame, png in request["views"]
    ]
    before = address_space()
    try:
        with _limited(limits):
            try:
                decoded = decode_views(data, views, limits)
            except NoRoomToDecode:
                return {"failed": "no_room" if _is_machine_full() else "memory"}
    except PictureTooLarge as error:
        return {"failed": "too_large", "reason": str(error)}
    except BadImage as error:
        # a library that gets no memory may call the picture broken
        unsure = _peak() > before + limits.memory * 3 // 4
        either = f", or takes more than the {file_size(limits.memory)} of memory allowed to decode" if unsure else ""
        return {"failed": "bad", "reason": f"{error}{either}"}
    place = 0
    for pixels in decoded.views:
        rest = pixels.reshape(-1).data
        while rest:
            written = os.pwrite(file, rest, place)
            place, rest = place + written, rest[written:]
    return {"size": decoded.size, "shapes": [pixels.shape for pixels in decoded.views]}


def _facts(file: int, data: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """Read the facts of a photograph; its sidecars follow it in the file."""
    from tapr.images.photo_facts import read_facts

    sidecars, place = [], len(data)
    for size in request["sidecars"]:
        sidecars.append(os.pread(file, size, place))
        place += size
    try:
        with _limited(Limits(**request["limits"])):
            return {"facts": read_facts(data, sidecars)}
    except MemoryError:
        return {"failed": "memory"}


def _is_machine_full() -> bool:
    """Return whether memory that the limit allows cannot be had either: then the picture may be a good one."""
    room = resource.getrlimit(resource.RLIMIT_AS)[0] - address_space() - _MARGIN
    if room < _MARGIN:
        return False
    try:
        mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return True
    return False


if __name__ == "__main__":
    main()
