"""Memory that decoding takes: the estimate that is made before, beside the measured peak, for files made to escape it.

python benchmarks/decode_memory.py [--megapixels 12] [--large 119]

The files (tests/images/crafted.py) are small and laid out so that their decoder needs as much memory as their format
allows. First table: each is decoded alone with the limit lifted; the estimate must not be below the peak. Second table:
those of `--large` megapixels under the limit of 1 GiB, whole and as the encoder asks for them (224 pixels): decoded
within it, or refused before a pixel is decoded. Linux only: the peak is read from /proc.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import platform
import resource
from datetime import UTC, datetime
from pathlib import Path

import PIL

from tapr.images import decode, memory

_spec = importlib.util.spec_from_file_location("crafted", Path(__file__).parents[1] / "tests" / "images" / "crafted.py")
assert _spec is not None
assert _spec.loader is not None
crafted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crafted)

MB = 1e6
SLACK = 2 * MB  # what the allocator and Python take beside


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def peak_of(data: bytes, side: int | None, limits: decode.Limits) -> tuple[int, int, str]:
    """-> estimate, measured peak above what there was before, and the reason of a refusal."""
    estimates: list[int] = []
    real = memory.estimate

    def noted(*args: object) -> int:
        estimates.append(real(*args))  # type: ignore[arg-type]
        return estimates[-1]

    gc.collect()
    memory.give_back(2**30)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    memory.estimate = noted  # type: ignore[assignment]
    refused = ""
    try:
        decode.decode(data, side=side, limits=limits)
    except decode.BadImage as error:
        refused = str(error)
    finally:
        memory.estimate = real
    return max(estimates, default=0), max(0, status("VmHWM") - before), refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", type=float, default=12)
    parser.add_argument("--large", type=float, default=119)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))  # a mistake here must not take the machine along
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, Pillow {PIL.__version__}")
    print(f"\n{given.megapixels:g} megapixels, no limit: megabytes")
    print(f"{'file':<52} {'file':>7} {'side':>5} {'estimate':>9} {'peak':>8} {'peak/estimate':>14}")
    escaped, lifted = [], decode.Limits(memory=2**50, pixels=2**50)
    for name, make in crafted.MAKERS.items():
        data = make(int(given.megapixels * 1e6))
        for side in (None, 224):
            estimate, peak, refused = peak_of(data, side, lifted)
            row = f"{name:<52} {len(data) / MB:7.2f} {side or 'full':>5} {estimate / MB:9.1f} {peak / MB:8.1f}"
            print(f"{row} {peak / estimate:14.2f}" if not refused else f"{row} {refused}", flush=True)
            if refused or peak > estimate + SLACK:
                escaped.append(name)
    print(f"\n{given.large:g} megapixels, limit {decode.DEFAULT_LIMITS.memory / MB:,.0f} megabytes")
    print(f"{'file':<52} {'file':>7} {'side':>5} {'estimate':>9} {'peak':>8}")
    for name, make in crafted.MAKERS.items():
        if not name.startswith(crafted.BY_HAND):
            continue
        data = make(int(given.large * 1e6))
        for side in (None, 224):
            estimate, peak, refused = peak_of(data, side, decode.DEFAULT_LIMITS)
            row = f"{name:<52} {len(data) / MB:7.2f} {side or 'full':>5} {estimate / MB:9.1f} {peak / MB:8.1f}"
            print(row + (" refused" if refused else ""), flush=True)
            if peak > decode.DEFAULT_LIMITS.memory + SLACK:
                escaped.append(name)
    print(f"\n{len(crafted.MAKERS)} files; peaks above their estimate or the limit: {len(escaped)} {escaped or ''}")
    raise SystemExit(bool(escaped))


if __name__ == "__main__":
    main()
