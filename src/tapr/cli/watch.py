"""tapr watch: keep a gallery fresh while pictures come and go."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict
from threading import Event
from typing import Any, NoReturn

import click

from tapr.cli.index import what_was_done
from tapr.cli.index_options import index_options
from tapr.cli.terminal import gallery_option, output, say
from tapr.errors import TaprError
from tapr.gallery import Gallery
from tapr.index.report import Report
from tapr.index.watch import SETTLE_SECONDS, Watcher
from tapr.search.saved import SavedSearches
from tapr.utils.amounts import counted
from tapr.utils.safe_text import printable, printable_json


@click.command()
@click.argument("folders", nargs=-1)
@gallery_option
@index_options("encoder")
@click.option(
    "--settle", default=SETTLE_SECONDS, show_default=True, help="Seconds without a change before a run begins."
)
@click.option(
    "--poll", is_flag=True, help="Look at the files again and again: for network folders, which send no events."
)
@click.option("--json", "as_json", is_flag=True, help="Print each run and the summary as one line of JSON.")
def watch(
    folders: tuple[str, ...], gallery_path: str, encoder: str | None, settle: float, poll: bool, as_json: bool
) -> None:
    """Index FOLDERS (or any IMAGES of tapr index) into a gallery, then follow their changes until stopped.

    Without FOLDERS the gallery's own sources are followed. New pictures are encoded, deleted ones dropped, renamed ones
    kept, as by tapr index. A picture that cannot be read is told and does not end it; while another index run writes,
    this waits. A running tapr serve shows the changes by itself. Ctrl-C or SIGTERM ends it.
    New pictures that fit a saved search (tapr search --save) are told after each run.
    """
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    watcher: Watcher | None = None
    try:
        gallery = Gallery.build(gallery_path, folders, encoder=encoder, progress=_LineProgress())
        assert gallery.report is not None
        _tell(gallery.report, gallery.report.failures, as_json)
        last = tell_matches(gallery, None, as_json)

        def tell(report: Report, fresh: list[tuple[str, str]]) -> None:
            nonlocal last
            _tell(report, fresh, as_json)
            last = tell_matches(gallery, last, as_json)

        watcher = Watcher(gallery, tell, _LineProgress(), settle=settle, poll=poll)
        say(f"watching {', '.join(gallery.sources())}; stop with Ctrl-C")
        watcher.run(Event())
    except KeyboardInterrupt:
        if watcher is None:
            raise  # the first run did not finish: not a success
    if watcher is not None:
        _say_summary(watcher, time.monotonic() - begin, as_json)


class _LineProgress:
    """Prints remarks only: a bar would flicker with every picture."""

    def say(self, sentence: str) -> None:
        say(sentence)

    def start(self, total: int, what: str) -> None: ...
    def advance(self, done: int) -> None: ...


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _tell(report: Report, fresh: list[tuple[str, str]], as_json: bool) -> None:
    """Print one line per run; unusable files are named once."""
    if as_json:
        counts = {name: value for name, value in asdict(report).items() if isinstance(value, int)}
        failures = [{"path": path, "reason": reason} for path, reason in fresh]
        _line({"event": "run", **counts, "failures": failures, "seconds": round(report.seconds, 3)})
        return
    out = output()
    now = time.strftime("%H:%M:%S")
    out.print(f"{now} {what_was_done(report)}; {counted(report.pictures, 'picture')}", markup=False, soft_wrap=True)
    for path, reason in fresh:
        out.print(printable(f"  {path} {reason}"), markup=False, soft_wrap=True)
    sys.stdout.flush()


def tell_matches(gallery: Gallery, after: int | None, as_json: bool) -> int:
    """Check the saved searches and tell of matches after this number (None: of those found now) -> the last one."""
    saved = SavedSearches(gallery)
    try:
        found = saved.check(say)
        found = found if after is None else saved.matches(after=after)
        last = saved.file.last_number()
    except TaprError as error:  # the gallery is kept fresh all the same
        say(str(error))
        return after or 0
    for match in found:
        if as_json:
            _line({"event": "match", **match.to_dict()})
        else:
            told = f"{time.strftime('%H:%M:%S')} new for {match.search!r}: {match.id} (score {match.score:.4f})"
            output().print(printable(told), markup=False, soft_wrap=True)
    sys.stdout.flush()
    return last


def _say_summary(watcher: Watcher, seconds: float, as_json: bool) -> None:
    done = watcher.summary
    if as_json:
        _line({"event": "end", **asdict(done), "seconds": round(seconds, 1)})
        return
    output().print(
        f"watched for {seconds:.0f} s: {counted(done.runs, 'run')}, {done.encoded:,} encoded, {done.shared:,} equal to "
        f"another file, {done.removed:,} removed, {done.renamed:,} renamed, "
        f"{counted(done.troubles, 'try', 'tries')} that had to wait",
        markup=False,
        soft_wrap=True,
    )


def _line(value: dict[str, Any]) -> None:
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()
