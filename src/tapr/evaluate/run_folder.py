"""The folder of a run in progress. Finished parts are read, the rest is computed, and a killed run loses nothing
finished.

`begun.json` says what the run is about: code, queries, bank, records, score. The same command continues it. A command
that would compute something else is refused, so a folder never mixes results of two runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tapr.errors import BadInput
from tapr.evaluate.controls import Variant
from tapr.evaluate.fallback import unanswerable
from tapr.evaluate.run import ChunkRanks, ControlResult, Experiment, MethodResult, own_decisions, reads_offline
from tapr.evaluate.run_files import (
    CONFIG,
    CONTROLS,
    RANKINGS,
    file_name,
    ranks_from_json,
    ranks_to_json,
    read_control,
    read_ranking,
    write_control,
    write_json,
    write_ranking,
)
from tapr.evaluate.theta import Choice
from tapr.methods import Method
from tapr.query.spec import Weights

BEGUN, TIMES, LOCK, DONE = "begun.json", "times.json", ".lock", "index.json"


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun: dict[str, Any] = {}

    @classmethod
    @contextmanager
    def held(cls, path: Path) -> Iterator[RunFolder]:
        """Lock the folder for this process. A new folder without results is removed at the end."""
        run = cls(path)
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            with FileLock(str(path / LOCK)).acquire(timeout=0):
                yield run
        except Timeout:
            raise BadInput(f"another tapr eval is at work in {path}: wait for it, or name another --out") from None
        finally:
            if new and not run._has_ranks() and "grid" not in run._begun:
                for name in (LOCK, TIMES, BEGUN):
                    (path / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # other files stay
                    for folder in new:
                        folder.rmdir()

    def begin(self, identity: Mapping[str, Any]) -> bool:
        """Return whether this continues an earlier run; refuse a folder that holds a different run."""
        known = self._read(BEGUN)
        if known is None and (self.path / CONFIG).exists():
            raise BadInput(f"{self.path} holds a run of an older tapr: name another --out, or remove it")
        if known is None or not self._has_ranks():
            self._begun = {"identity": dict(identity)}
            write_json(self.path / BEGUN, self._begun)
            return False
        before, now = known.get("identity", {}), json.loads(json.dumps(identity))
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if changed:
            raise BadInput(
                f"{self.path} holds another run, with other {', '.join(changed)}: name another --out, or remove it"
            )
        self._begun = known
        return True

    def _has_ranks(self) -> bool:
        """Return whether the folder holds results."""
        return any(self.path.glob(f"{RANKINGS}/*.jsonl")) or any(self.path.glob(f"{CONTROLS}/*.jsonl"))

    def theta(self) -> tuple[Choice, list[float] | None] | None:
        """The weights chosen by an earlier process, and the grid if there was one."""
        found = self._begun.get("theta")
        if found is None:
            return None
        return Choice(Weights.parse(found["weights"]), found["how"]), self._begun.get("grid")

    def keep_theta(self, choice: Choice, grid: list[float] | None) -> None:
        self._begun["theta"] = choice.to_dict()
        if grid is not None:
            self._begun["grid"] = grid
        write_json(self.path / BEGUN, self._begun)

    def method(self, method: Method, experiment: Experiment, both: bool) -> MethodResult | None:
        """A method's stored result, or None if it must run. `both`: also with the reference flag inverted."""
        found = read_ranking(self.path, method.name, experiment.dataset.protocol.macro)
        hidden = experiment.dataset.protocol.hidden
        if found is None or (both and found.flipped is None and not hidden):
            return None
        without: dict[str, str] = {}
        for part in experiment.dataset.parts:
            without |= unanswerable(method, part.queries, experiment.records)
        return MethodResult(
            method.name,
            method.label,
            own_decisions(method, experiment),
            found.outcome,
            found.top,
            found.subset,
            0.0,
            without,
            reads_offline(method, experiment),
            found.flipped if both else None,
            method.multi_pass,
        )

    def keep_method(self, result: MethodResult) -> None:
        write_ranking(self.path, result)
        (self.path / f"failed-{result.name}.txt").unlink(missing_ok=True)

    def controls(self, asked: Sequence[Variant], macro: bool) -> list[ControlResult] | None:
        """The stored results of these variants; None if one is missing."""
        done = self._read(f"{CONTROLS}/{DONE}") or {}
        if any(file_name(variant.name) not in done for variant in asked):
            return None
        found = []
        for variant in asked:
            outcome = read_control(self.path, variant.name, macro)
            if outcome is None:
                return None
            found.append(ControlResult(variant.name, variant.control, outcome))
        return found

    def keep_controls(self, results: Sequence[ControlResult]) -> None:
        for result in results:
            write_control(self.path, result)
        done = self._read(f"{CONTROLS}/{DONE}") or {}
        done |= {file_name(result.name): {"name": result.name, "control": result.control} for result in results}
        write_json(self.path / CONTROLS / DONE, done)
        (self.path / "failed-controls.txt").unlink(missing_ok=True)

    def times(self) -> dict[str, float]:
        """Seconds per stage, as measured by the process that ran it. Not part of the result."""
        return self._read(TIMES) or {}

    def keep_time(self, name: str, seconds: float) -> None:
        write_json(self.path / TIMES, {**self.times(), name: seconds})

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise BadInput(f"{self.path / name} is damaged ({error}): remove {self.path} and run it again") from None
        return value


class ChunkFile:
    """The ranks of finished chunks of queries, one line each. The file is removed once all controls are complete.

    A chunk is always computed as a whole, so its ranks do not depend on where an earlier run stopped.
    """

    def __init__(self, folder: Path, unit: str, asked: Sequence[Variant]) -> None:
        self._path = _chunk_path(folder, unit)
        self._head = [variant.name for variant in asked]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._found: dict[str, ChunkRanks] = {}
        for key, ranks_by_query in self._read():
            self._found[key] = ranks_by_query
        if not self._found:
            self._path.write_text(json.dumps(self._head) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> ChunkRanks | None:
        return self._found.get(key)

    def put(self, key: str, ranks_by_query: ChunkRanks) -> None:
        value = [
            key,
            {str(place): [ranks_to_json(places) for places in found] for place, found in ranks_by_query.items()},
        ]
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> Iterator[tuple[str, ChunkRanks]]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        try:
            if json.loads(lines[0]) != self._head:  # written for other controls
                return
            for line in lines[1:]:
                if line:
                    key, ranks_by_query = json.loads(line)
                    yield (
                        key,
                        {
                            int(place): [ranks_from_json(one) for one in found]
                            for place, found in ranks_by_query.items()
                        },
                    )
        except ValueError:  # the process was killed while it wrote the last line: that chunk is computed again
            self._cut(lines)

    def _cut(self, lines: Sequence[bytes]) -> None:
        whole = []
        for line in lines:
            try:
                json.loads(line)
            except ValueError:
                break
            whole.append(line + b"\n")
        self._path.write_bytes(b"".join(whole))


def remove_chunks(folder: Path, unit: str) -> None:
    """Call this once all controls of the unit are stored in their own files."""
    _chunk_path(folder, unit).unlink(missing_ok=True)


def _chunk_path(folder: Path, unit: str) -> Path:
    return folder / CONTROLS / f"unfinished-{file_name(unit)}.jsonl"
