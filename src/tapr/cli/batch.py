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
from tapr.factorize.asking import Asker, RecordKind
from tapr.factorize.batch import BatchReport, factorize_batch, is_answered, record_batch
from tapr.factorize.failures import ServerRefused, ServerUnreachable
from tapr.factorize.openai_compatible import OpenAIFactorizer
from tapr.factorize.picture import picture_only
from tapr.factorize.queries import BatchQuery, read_queries
from tapr.factorize.records import SPEC, Maker, RecordFile
from tapr.factorize.registry import maker_of
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import TokenUsage
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
        raise BadInput("with --batch the record file is --out: leave out --records", code="conflicting_options")
    queries, blank = _queries(asked.queries)
    jobs = _jobs(asked)
    _say_estimate(asked, jobs, queries)
    if only_estimate:
        return
    reports: dict[str, BatchReport] = {}
    try:
        for job in jobs:
            with _progress(job.kind, len(queries), job.settings) as show:
                reports[job.kind] = job.make(queries, show)
    except (ServerRefused, ServerUnreachable) as error:
        what = f"{error}; what was made is in {asked.out}, the same command goes on from there"
        raise type(error)(what) from None
    _sum_up(asked, reports, blank, {job.kind: job.settings for job in jobs}, as_json)


@dataclass(frozen=True)
class _Job:
    """One kind of record to make. Settings and question are those of a language model, where one is asked."""

    kind: str
    maker: Maker
    settings: LLMSettings | None
    question: RecordKind | None
    make: Callable[[Sequence[BatchQuery], Show], BatchReport]


def _with_server(asked: Batch) -> Batch:
    """For all kinds, specs come from the language model too, unless another factorizer is named."""
    if asked.kind == ALL and not was_given("factorizer"):
        return replace(asked, chosen=replace(asked.chosen, factorizer="openai"))
    return asked


def _jobs(asked: Batch) -> list[_Job]:
    """List what is to be made. Wrong settings are refused here, before anything is read or asked."""
    if asked.prompt is not None and asked.kind in (SPEC, ALL):
        what = "--prompt is for records of one compared system: name it with --for METHOD"
        raise BadInput(what, code="conflicting_options")
    if asked.kind == SPEC:
        return [_spec_job(asked)]
    from tapr.methods.record_prompts import load_kind, prompted_kinds

    settings = LLMSettings.load({"base_url": asked.chosen.llm_url, "model": asked.chosen.llm_model})
    names = tuple(prompted_kinds()) if asked.kind == ALL else (asked.kind,)
    askers = [Asker(load_kind(name, asked.prompt), settings) for name in names]
    specs = [_spec_job(asked)] if asked.kind == ALL else []
    return [*specs, *(_record_job(asker, asked.out) for asker in askers)]


def _record_job(asker: Asker, out: Path) -> _Job:
    def make(queries: Sequence[BatchQuery], show: Show) -> BatchReport:
        kind, concurrency = asker.kind.name, asker.settings.concurrency
        return record_batch(
            queries, kind, asker.session(), asker.maker, out, picture_only, concurrency=concurrency, on_progress=show
        )

    return _Job(asker.kind.name, asker.maker, asker.settings, asker.kind, make)


def _spec_job(asked: Batch) -> _Job:
    chosen = asked.chosen
    settings = chosen.settings() if chosen.factorizer == "openai" or asked.kind != ALL else None
    encoder = asked.load_encoder(asked.encoder) if chosen.needs_encoder else None
    factorizer = (chosen if settings else replace(chosen, llm_url=None, llm_model=None)).load(encoder)
    maker = maker_of(factorizer, encoder)

    def make(queries: Sequence[BatchQuery], show: Show) -> BatchReport:
        concurrency = settings.concurrency if settings else 1
        opener = asked.opener(encoder)
        return factorize_batch(queries, factorizer, maker, asked.out, opener, concurrency=concurrency, on_progress=show)

    question = factorizer.kind if isinstance(factorizer, OpenAIFactorizer) else None
    return _Job(SPEC, maker, settings, question, make)


def _queries(path: Path) -> tuple[list[BatchQuery], list[str]]:
    """The queries with an edit, and the ids of those with a blank edit, which are reported and left out."""
    queries = read_queries(path)
    blank = [query.id for query in queries if not query.edit.strip()]
    if blank:
        say(f"{len(blank)} without an edit: no record is made for {', '.join(blank)}; tapr eval ranks by the reference")
    return [query for query in queries if query.edit.strip()], blank


def _say_estimate(asked: Batch, jobs: Sequence[_Job], queries: Sequence[BatchQuery]) -> None:
    """Report the estimated number of calls and tokens."""
    from tapr.methods.estimate import HOW, estimate, short

    total = TokenUsage()
    settings = None
    for job in jobs:
        if job.question is None or job.settings is None:
            continue
        settings = job.settings
        index, _ = RecordFile(asked.out).index(job.kind)
        waiting = [query for query in queries if not _is_answered(index, query, job.maker)]
        expected = estimate(job.question, waiting, settings)
        total += expected.usage
        say(expected.sentence())
    if settings is not None:
        cost = total.cost(settings.price_in, settings.price_out)
        price = "" if cost is None else f", cost {cost:.2f}"
        used = f"{total.calls:,} calls, {short(total.tokens_in)} tokens read, {short(total.tokens_out)} written{price}"
        say(f"together about {used} ({HOW}); {settings.concurrency} requests at a time")


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
