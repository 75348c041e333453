"""tapr factorize --batch: a file of queries in, a file of records out, of one kind or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from tapr.cli.factorizer_options import FactorizerOptions
from tapr.cli.terminal import print_json, remarks, say, was_given
from tapr.encoders.base import Encoder
from tapr.errors import BadInput, TaprError
from tapr.factorize.batch import BatchReport, factorize_batch, is_answered
from tapr.factorize.failures import ServerRefused, ServerUnreachable
from tapr.factorize.queries import BatchQuery, read_queries
from tapr.factorize.records import SPEC, Maker, RecordFile
from tapr.factorize.registry import maker_of
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import Usage
from tapr.query.reference import Reference
from tapr.utils.amounts import counted

ALL = "all"
OpenReference = Callable[[str | Path], Reference]
Show = Callable[[BatchReport], None]


@dataclass(frozen=True)
class Batch:
    """The options of a batch."""

    queries: Path
    out: Path
    kind: str  # kind of records; ALL for every kind
    chosen: FactorizerOptions
    encoder: str | None
    load_encoder: Callable[[str | None], Encoder]
    opener: Callable[[Encoder | None], OpenReference]
    prompt: Path | None = None  # of one kind's records, if not its own


def run_batch(asked: Batch, only_estimate: bool, as_json: bool) -> None:
    """Make the records, one kind after the other. The same command continues where it stopped."""
    asked = _with_server(asked)
    if asked.chosen.records is not None and asked.chosen.factorizer != "records":
        raise BadInput("with --batch the record file is --out: leave out --records")
    queries, blank = _queries(asked.queries)
    makers = _makers(asked)
    _say_estimate(asked, makers, queries)
    if only_estimate:
        return
    reports: dict[str, BatchReport] = {}
    try:
        for maker in makers:
            with _progress(maker.kind, len(queries), maker.settings) as show:
                reports[maker.kind] = maker.make(queries, show)
    except (ServerRefused, ServerUnreachable) as error:
        what = f"{error}; what was made is in {asked.out}, the same command goes on from there"
        raise type(error)(what) from None
    _sum_up(asked, reports, blank, {maker.kind: maker.settings for maker in makers}, as_json)


@dataclass(frozen=True)
class _Maker:
    kind: str
    name: Maker
    settings: LLMSettings | None
    make: Callable[[Sequence[BatchQuery], Show], BatchReport]


def _with_server(asked: Batch) -> Batch:
    """For all kinds, specs come from the language model too, unless another factorizer is named."""
    if asked.kind == ALL and not was_given("factorizer"):
        return replace(asked, chosen=replace(asked.chosen, factorizer="openai"))
    return asked


def _makers(asked: Batch) -> list[_Maker]:
    """Wrong settings are said here, before anything is read or asked."""
    if asked.prompt is not None and asked.kind in (SPEC, ALL):
        raise BadInput("--prompt is for records of one compared system: name it with --for METHOD")
    if asked.kind == SPEC:
        return [_spec_maker(asked)]
    from tapr.methods.ask_records import RecordAsker, make_records, prompted_kinds

    kinds = tuple(prompted_kinds()) if asked.kind == ALL else (asked.kind,)
    settings = LLMSettings.load({"base_url": asked.chosen.llm_url, "model": asked.chosen.llm_model})
    made = [_spec_maker(asked)] if asked.kind == ALL else []
    for kind in kinds:

        def make(queries: Sequence[BatchQuery], show: Show, kind: str = kind) -> BatchReport:
            return make_records(kind, queries, settings, asked.out, show, asked.prompt)

        made.append(_Maker(kind, RecordAsker(kind, settings, asked.prompt).maker, settings, make))
    return made


def _spec_maker(asked: Batch) -> _Maker:
    chosen = asked.chosen
    settings = chosen.settings() if chosen.factorizer == "openai" or asked.kind != ALL else None
    encoder = asked.load_encoder(asked.encoder) if chosen.needs_encoder else None
    factorizer = (chosen if settings else replace(chosen, llm_url=None, llm_model=None)).load(encoder)
    maker = maker_of(factorizer, encoder)

    def make(queries: Sequence[BatchQuery], show: Show) -> BatchReport:
        concurrency = settings.concurrency if settings else 1
        opener = asked.opener(encoder)
        return factorize_batch(queries, factorizer, maker, asked.out, opener, concurrency=concurrency, on_progress=show)

    return _Maker(SPEC, maker, settings, make)


def _queries(path: Path) -> tuple[list[BatchQuery], list[str]]:
    """The queries with an edit, and the ids of those with a blank edit, which are reported and left out."""
    queries = read_queries(path)
    blank = [query.id for query in queries if not query.edit.strip()]
    if blank:
        say(f"{len(blank)} without an edit: no record is made for {', '.join(blank)}; tapr eval ranks by the reference")
    return [query for query in queries if query.edit.strip()], blank


def _say_estimate(asked: Batch, makers: Sequence[_Maker], queries: Sequence[BatchQuery]) -> None:
    """Report the estimated number of calls and tokens."""
    from tapr.methods.estimate import HOW, estimate, short

    total = Usage()
    used = [(maker, maker.settings) for maker in makers if maker.settings is not None]
    for maker, settings in used:
        index, _ = RecordFile(asked.out).index(maker.kind)
        waiting = [query for query in queries if not _is_answered(index, query, maker.name)]
        found = estimate(maker.kind, waiting, settings)
        total += found.usage
        say(found.sentence())
    if used:
        cost = total.cost(used[0][1].price_in, used[0][1].price_out)
        price = "" if cost is None else f", cost {cost:.2f}"
        said = f"{total.calls:,} calls, {short(total.tokens_in)} tokens read, {short(total.tokens_out)} written{price}"
        say(f"together about {said} ({HOW}); {used[0][1].concurrency} requests at a time")


def _is_answered(index: Any, query: BatchQuery, maker: Maker) -> bool:
    try:
        return is_answered(index, query, maker)
    except BadInput:  # its picture cannot be read; reported later, when its record is made
        return False


def _sum_up(
    asked: Batch,
    reports: dict[str, BatchReport],
    blank: list[str],
    settings: dict[str, LLMSettings | None],
    as_json: bool,
) -> None:
    if as_json:
        found = {kind: _as_json(report, settings[kind]) for kind, report in reports.items()}
        whole = {"out": str(asked.out), "blank": blank}
        print_json(whole | {"kind": asked.kind} | (found if asked.kind == ALL else found[asked.kind]))
    else:
        for kind, report in reports.items():
            counts = ", ".join(f"{count} {name}" for name, count in _counts(report).items())
            click.echo(f"{asked.out}: {kind}: {counts}" if asked.kind == ALL else f"{asked.out}: {counts}")
            for note in report.notes:
                say(f"note: {note}")
            for name, reason in report.failures:
                say(f"failed: {name}: {reason}")
    failed = sum(len(report.failures) for report in reports.values())
    if failed:
        total = sum(report.total for report in reports.values())
        raise TaprError(f"{failed} of {counted(total, 'query', 'queries')} failed: the same command tries them again")


def _counts(report: BatchReport) -> dict[str, int]:
    return {"kept": report.kept, "reused": report.reused, "made": report.made, "fallbacks": report.fallbacks}


def _as_json(report: BatchReport, settings: LLMSettings | None) -> dict[str, Any]:
    failures = [{"id": name, "error": reason} for name, reason in report.failures]
    whole: dict[str, Any] = {"total": report.total, **_counts(report), "failures": failures}
    return whole | {"usage": report.usage.as_dict(), "cost": _cost(report, settings), "notes": list(report.notes)}


@contextmanager
def _progress(kind: str, total: int, settings: LLMSettings | None) -> Iterator[Show]:
    """A progress bar on stderr with the cost so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[used]}"), console=remarks) as bar:
        task = bar.add_task(kind, total=total, used="")

        def show(report: BatchReport) -> None:
            used = [f"{len(report.failures)} failed"] if report.failures else []
            if report.usage.calls:
                used.append(f"{report.usage.tokens_in + report.usage.tokens_out:,} tokens")
            cost = _cost(report, settings)
            if cost is not None:
                used.append(f"cost {cost:.4f}")
            bar.update(task, completed=report.done, used=", ".join(used))

        yield show


def _cost(report: BatchReport, settings: LLMSettings | None) -> float | None:
    return report.usage.cost(settings.price_in, settings.price_out) if settings else None
