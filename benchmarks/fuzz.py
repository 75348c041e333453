"""Coverage-guided fuzzing (atheris, libFuzzer) of what reads other people's bytes: one target for some minutes.

    python benchmarks/fuzz.py pictures --minutes 10

Targets stand in tests/fuzz/targets.py and begin with the corpus beside them. A finding ends the run, is written to the
folder of --work and is printed with its traceback; `--replay FILE` runs one input again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

# our own tests/, also where some installed distribution has put a package of that name
sys.modules["tests"] = types.ModuleType("tests")
sys.modules["tests"].__path__ = [str(Path(__file__).parents[1] / "tests")]

NAMES = ("pictures", "specs", "edits", "api")
_LONGEST = {"pictures": 4096, "specs": 2048, "edits": 600, "api": 2048}  # bytes of one input


def inside(name: str, arguments: list[str]) -> None:
    """In a process of its own, which libFuzzer ends."""
    import atheris  # pip install atheris; Linux and macOS

    with atheris.instrument_imports(include=["tapr", "PIL"] if name == "pictures" else ["tapr"]):
        from tests.fuzz.targets import TARGETS
    TARGETS[name](b"")  # what is loaded once is loaded before the first input is timed
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


def fuzz(name: str, minutes: float, work: Path) -> int:
    from tests.fuzz.targets import CORPUS

    found = work / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={int(minutes * 60)}",
        f"-max_len={_LONGEST[name]}",
        "-timeout=60",
        "-rss_limit_mb=4096",
    ]
    options += [f"-artifact_prefix={work}/{name}-", "-print_final_stats=1", "-seed=1"]
    command = [sys.executable, __file__, "--inside", name, str(found), str(CORPUS / name), *options]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    seconds = time.perf_counter() - begin
    log = done.stderr + done.stdout
    states = re.findall(r"cov: (\d+) ft: (\d+)", log)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", log)
    first, last = (states[0][0], states[-1][0]) if states else ("?", "?")
    crashes = sorted(path.name for path in work.glob(f"{name}-*"))
    print("| target | minutes | inputs | covered at first | covered at last | new inputs kept | findings |")
    print("|---|---|---|---|---|---|---|")
    kept = len(list(found.iterdir()))
    count = f"{int(runs[1]):,}" if runs else "?"
    print(f"| {name} | {seconds / 60:.1f} | {count} | {first} | {last} | {kept} | {', '.join(crashes) or 'none'} |")
    if done.returncode != 0:
        print(log[-6000:], file=sys.stderr)
    return done.returncode


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--work", type=Path, help="where new inputs and findings go; else a temporary folder")
    parser.add_argument("--replay", type=Path, help="run this input alone, without atheris")
    asked = parser.parse_args()
    if asked.replay:
        from tests.fuzz.targets import TARGETS

        TARGETS[asked.target](asked.replay.read_bytes())
        return
    sys.exit(fuzz(asked.target, asked.minutes, asked.work or Path(tempfile.mkdtemp(prefix="tapr-fuzz-"))))


if __name__ == "__main__":
    main()
