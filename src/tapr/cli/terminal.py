"""Output helpers of all commands: JSON on stdout, progress and remarks on stderr, tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.style import Style
from rich.text import Text

from tapr.plugins import Registry
from tapr.store.lock import WAIT_SECONDS
from tapr.utils.safe_text import printable, printable_json, without_secrets


class SafeConsole(Console):
    """All output goes through here, so that file names and table cells cannot control the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **options)


remarks = SafeConsole(stderr=True, highlight=False)
json_option: Callable[..., Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
gallery_option: Callable[..., Any] = click.option(
    "-g", "--gallery", "gallery_path", required=True, type=click.Path(), help="The gallery's folder."
)

wait_option: Callable[..., Any] = click.option(
    "--wait", default=WAIT_SECONDS, show_default=True, help="Seconds to wait for another writer to end."
)


class NameOf(click.ParamType):  # type: ignore[type-arg]  # older releases of click take none
    """An option whose value is a name in a registry. A default is not checked, so nothing is loaded for it."""

    name = "name"

    def __init__(self, door: Registry[Any]) -> None:
        self._door = door

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self._door)}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if (param is None or value != param.default) and value not in self._door:
            self.fail(f"{value!r} is not one of {', '.join(self._door)}", param, ctx)
        return value


def output() -> Console:
    """A console for results. Created per call, so that tests can capture stdout."""
    return SafeConsole(highlight=False)


def print_json(value: Any) -> None:
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def say(sentence: str) -> None:
    remarks.print(printable(without_secrets(sentence)), style="dim", markup=False, soft_wrap=True)


def link(path: str | Path, shown: str | None = None) -> Text:
    """A path that a terminal opens when it is pressed (OSC 8); what is no terminal gets the plain text."""
    place = Path(path)
    style = Style(link=place.absolute().as_uri()) if "://" not in str(path) else Style()
    return Text(printable(str(path) if shown is None else shown), style)


def say_place(sentence: str, place: str | Path) -> None:
    """A remark that ends with a path."""
    remarks.print(Text(f"{printable(without_secrets(sentence))} ", "dim"), link(place), sep="", soft_wrap=True)


def plain(text: str) -> str:
    """Text that rich prints unchanged on one line: no markup, no control characters."""
    return escape(printable(text))


class ProgressBar:
    """A utils.progress.Progress on stderr: a bar with rate and remaining time on a terminal, otherwise remarks only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}")
        self._bar = Progress(*columns, console=remarks, transient=True, disable=not remarks.is_terminal)
        self._clock = clock
        self._task: TaskID | None = None
        self._began, self._advances = 0.0, 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._bar.stop()

    def say(self, sentence: str) -> None:
        say(sentence)

    def start(self, total: int, what: str) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total, pace="")
        self._began, self._advances = self._clock(), 0
        self._bar.start()

    def advance(self, done: int) -> None:
        assert self._task is not None
        self._bar.advance(self._task, done)
        self._advances += 1
        self._bar.update(self._task, pace=self.pace)

    @property
    def pace(self) -> str:
        """Rate and remaining time, from the second batch on: batches that end together say nothing of the rate, so it
        is that since the start.
        """
        if self._task is None or self._advances < 2:
            return ""
        (task,) = self._bar.tasks
        rate = task.completed / max(self._clock() - self._began, 1e-9)
        left = timedelta(seconds=round(((task.total or 0) - task.completed) / rate)) if rate else ""
        return f"{rate:.0f}/s {left}" if rate >= 10 else f"{rate:.1f}/s {left}"


def was_given(name: str) -> bool:
    """Whether an option was given explicitly."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT
