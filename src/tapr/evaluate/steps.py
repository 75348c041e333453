"""Runs methods and controls one after the other. Results of an earlier process are read, not computed again."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapr.errors import TaprError
from tapr.evaluate.controls import Variant
from tapr.evaluate.run import ControlResult, Experiment, Result, can_share, run_method, run_shared, run_variants
from tapr.evaluate.run_folder import ChunkFile, RunFolder, remove_chunks
from tapr.evaluate.theta import Choice
from tapr.methods import Method

CONTROLS = "controls"


class StageClock:
    """Times each stage and stores it with the run: an earlier process may have run other stages."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._folder, self._say, self._last = folder, say, time.perf_counter()

    def lap(self, name: str, done_before: bool = False) -> None:
        now = time.perf_counter()
        seconds = round(now - self._last, 1)
        self._last = now
        if done_before:
            self._say(f"{name}: done before")
            return
        self._folder.keep_time(name, seconds)
        self._say(f"{name}: {seconds:.1f} s")


@dataclass(frozen=True, eq=False)
class RunContext:
    """All that methods and controls need to run."""

    experiment: Experiment
    choice: Choice
    folder: RunFolder
    clock: StageClock
    keep_texts: Callable[[], None]
    both: bool  # report with the reference kept and with it removed

    def known_controls(self, asked: Sequence[Variant]) -> list[ControlResult] | None:
        return self.folder.controls(asked, self.experiment.dataset.protocol.macro)

    def keep_controls(self, unit: str, found: Sequence[ControlResult]) -> None:
        self.keep_texts()
        self.folder.keep_controls(found)
        remove_chunks(self.folder.path, unit)


def run_methods(work: RunContext, made: Mapping[str, Method], result: Result, controls: Sequence[Variant]) -> bool:
    """Run the methods. Ranks are written as soon as a method ends; a failure is recorded, and the others continue.

    Returns whether the controls ran too: if possible, TAPR's probe matches are shared with them.
    """
    together = _together(work, made, controls)
    for name, method in made.items():
        if method not in together:
            _run(work, name, method, result)
    done = bool(together) and _run_together(work, together, result, controls)
    for method in () if done else together:
        _run(work, method.name, method, result)
    order = list(made)
    result.methods.sort(key=lambda one: order.index(one.name))
    return done and bool(controls)


def _run(work: RunContext, name: str, method: Method, result: Result) -> None:
    found = work.folder.method(method, work.experiment, work.both)
    known = found is not None
    try:
        found = found or run_method(method, work.experiment, work.both)
    except Exception as error:  # an error of one method must not stop the others
        result.failed[name] = describe_failure(work.folder.path, name, error)
    else:
        work.keep_texts()
        if not known:
            work.folder.keep_method(found)
        result.methods.append(found)
    work.clock.lap(f"method {name}", known)


def _together(work: RunContext, made: Mapping[str, Method], controls: Sequence[Variant]) -> list[Method]:
    """The methods to run in one pass with the controls; empty if nothing can be shared."""
    left = [
        method
        for method in made.values()
        if method.shared_tau is not None and work.folder.method(method, work.experiment, work.both) is None
    ]
    shared = len(left) + bool(controls and work.known_controls(controls) is None)
    return left if shared > 1 and can_share(work.experiment) else []


def _run_together(work: RunContext, methods: Sequence[Method], result: Result, controls: Sequence[Variant]) -> bool:
    """False on failure: the methods then run one by one, which shows which of them fails."""
    kept = ChunkFile(work.folder.path, CONTROLS, controls) if controls else None
    try:
        found, by_control = run_shared(methods, controls, work.experiment, work.choice, kept, work.both)
    except Exception:
        return False
    work.keep_texts()
    for one in found:
        work.folder.keep_method(one)
        result.methods.append(one)
    names = [method.name for method in methods]
    if controls:
        work.keep_controls(CONTROLS, by_control)
        result.controls.extend(by_control)
    work.clock.lap(f"{', '.join([*names, CONTROLS] if controls else names)} in one pass")
    return True


def variants_of(
    work: RunContext, unit: str, asked: Sequence[Variant], experiment: Callable[[], Experiment]
) -> list[ControlResult]:
    """Read the stored results, or compute what is missing. The experiment is only built if needed."""
    known = work.known_controls(asked)
    if known is not None:
        remove_chunks(work.folder.path, unit)  # the last process may have been killed just before this
        work.clock.lap(unit, done_before=True)
        return known
    found = run_variants(asked, experiment(), work.choice, ChunkFile(work.folder.path, unit, asked))
    work.keep_controls(unit, found)
    work.clock.lap(unit)
    return found


def describe_failure(folder: Path, name: str, error: Exception) -> str:
    """One sentence about the error. For unexpected errors the traceback is written to a file."""
    if isinstance(error, TaprError):
        return str(error)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"failed-{name}.txt"
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error or 'no reason was given'} (more in {path.name})"
