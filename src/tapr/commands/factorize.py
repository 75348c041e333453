"""tapr factorize: a picture and an edit in, the spec out; or a whole file of them, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tapr.commands.factorizer_options import FactorizerOptions, factorizer_options
from tapr.commands.terminal import json_option, print_json, remarks, say
from tapr.encoders.base import Encoder
from tapr.errors import BadInput, TaprError
from tapr.factorize.base import Factorization, Reference
from tapr.factorize.batch import BatchQuery, BatchReport, factorize_batch, read_queries
from tapr.factorize.failures import ServerRefused, ServerUnreachable
from tapr.factorize.picture import picture_only
from tapr.factorize.records import HAND, SPEC, RecordFile
from tapr.factorize.registry import maker_of
from tapr.factorize.replay import spec_record
from tapr.factorize.settings import LLMSettings
from tapr.spec import EditSpec

FilePath = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("reference", required=False)
@click.argument("edit", required=False)
@factorizer_options
@click.option("--encoder", metavar="NAME", help="The encoder with which grounded reads the picture.")
@click.option("--spec", type=FilePath, help="A hand-written spec for REFERENCE and EDIT, to be put into --records.")
@click.option("--batch", type=FilePath, help='Queries as JSON lines {"id", "reference", "edit"}; goes with --out.')
@click.option("--out", type=FilePath, help="The records of --batch. The same command resumes where it stopped.")
@click.option(
    "--for", "kind", metavar="METHOD", help="Records of a compared system, for tapr eval; needs --batch and a server."
)
@click.option("-o", "--output", type=FilePath, help="Write the spec to a file, for tapr search --spec.")
@click.option("--why", is_flag=True, help="Also show the picture's caption and what the edit did to it, step by step.")
@json_option
def factorize(
    *,
    reference: str | None,
    edit: str | None,
    encoder: str | None,
    spec: Path | None,
    batch: Path | None,
    out: Path | None,
    kind: str | None,
    output: Path | None,
    why: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the edit specification of REFERENCE (a picture) and EDIT (how the wanted one differs) as JSON."""
    chosen = FactorizerOptions(**options)
    if (batch is None) != (out is None):
        raise BadInput("--batch and --out go together: queries in, records out")
    if batch is not None and out is not None:
        if reference is not None or spec is not None or output is not None:
            raise BadInput("with --batch the queries come from its file: leave out REFERENCE, EDIT, --spec and -o")
        if kind not in (None, SPEC):  # specs are what it makes anyway
            _for_method(kind, batch, out, chosen, as_json)
            return
        _many(batch, out, chosen, encoder, as_json)
        return
    if kind is not None:
        raise BadInput("--for makes records of many queries: give them with --batch FILE --out FILE")
    if reference is None or edit is None:
        raise BadInput('give a picture and an edit: tapr factorize photo.jpg "make it red"')
    if spec is not None:
        answer = _by_hand(reference, edit, spec, chosen)
    else:
        loaded = _load_encoder(encoder) if chosen.needs_encoder else None
        factorizer = chosen.load(loaded)  # before the picture: a wrong setting is said at once
        answer = factorizer.factorize(_opener(loaded)(reference), edit)
    _show(answer, output, as_json)
    if why and not as_json:
        _explain(answer)


def _explain(answer: Factorization) -> None:
    """Caption, operations, result: how the spec came about."""
    caption = answer.details.get("caption")
    if caption is None:
        say("why: no captioner looked at the picture")
        return
    say(f"the picture: {caption['text']} ({'sure' if caption['sure'] else 'unsure'}, {caption['score']:.2f})")
    say(f"the edit was read as: {answer.details['read as']}")
    for operation in answer.details["operations"] or ["nothing to change"]:
        say(f"  {operation}")
    say(f"the result: {answer.spec.target}")


def _show(answer: Factorization, output: Path | None, as_json: bool) -> None:
    text = answer.spec.to_json(indent=2)
    if output is not None:
        try:
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"cannot write the spec to {str(output)!r}: {error.strerror}") from None
    if as_json:
        whole = {"spec": answer.spec.to_dict(), "factorizer": answer.factorizer, "notes": list(answer.notes)}
        print_json({**whole, "details": dict(answer.details)})
        return
    if output is None:
        click.echo(text)
    say(f"made by {answer.factorizer}")
    for note in answer.notes:
        say(f"note: {note}")


def _by_hand(reference: str, edit: str, spec: Path, chosen: FactorizerOptions) -> Factorization:
    if chosen.records is None:
        raise BadInput("--spec puts a hand-written spec into a record file: name it with --records FILE")
    answer = Factorization(EditSpec.from_file(spec), "given")
    RecordFile(chosen.records).append(spec_record(answer, picture_only(reference).sha256, edit, HAND))
    return answer


def _many(queries_path: Path, out: Path, chosen: FactorizerOptions, encoder_name: str | None, as_json: bool) -> None:
    if chosen.records is not None and chosen.factorizer != "records":
        raise BadInput("with --batch the record file is --out: leave out --records")
    queries, blank = _queries(queries_path)
    encoder = _load_encoder(encoder_name) if chosen.needs_encoder else None
    factorizer = chosen.load(encoder)
    settings = chosen.settings()
    try:
        with _progress(len(queries), settings) as show:
            report = factorize_batch(
                queries,
                factorizer,
                maker_of(factorizer, encoder),
                out,
                _opener(encoder),
                concurrency=settings.concurrency if settings else 1,
                on_progress=show,
            )
    except (ServerRefused, ServerUnreachable) as error:
        raise type(error)(f"{error}; what was made is in {out}, the same command goes on from there") from None
    _sum_up(report, blank, out, _cost(report, settings), as_json)


def _for_method(kind: str, queries: Path, out: Path, chosen: FactorizerOptions, as_json: bool) -> None:
    """Each compared system has a prompt of its own, which only a language model can answer."""
    from tapr.methods.ask import make_records

    overrides = {"base_url": chosen.llm_url, "model": chosen.llm_model}
    asked, blank = _queries(queries)
    made, failed = make_records(kind, asked, LLMSettings.load(overrides), out)
    if as_json:
        print_json({"out": str(out), "kind": kind, "made": made, "failed": failed, "blank": blank})
    else:
        click.echo(f"{out}: {made} made")
    if failed:
        raise TaprError(f"{failed} queries failed, named in {out}: the same command tries them again")


def _queries(path: Path) -> tuple[list[BatchQuery], list[str]]:
    """The queries that can be factorized, and the ids of those whose edit is blank, which are said and left out."""
    queries = read_queries(path)
    blank = [query.id for query in queries if not query.edit.strip()]
    if blank:
        say(f"{len(blank)} without an edit: no record is made for {', '.join(blank)}; tapr eval ranks by the reference")
    return [query for query in queries if query.edit.strip()], blank


def _sum_up(report: BatchReport, blank: list[str], out: Path, cost: float | None, as_json: bool) -> None:
    counts = {"kept": report.kept, "reused": report.reused, "made": report.made, "fallbacks": report.fallbacks}
    if as_json:
        failures = [{"id": name, "error": reason} for name, reason in report.failures]
        whole = {"out": str(out), "total": report.total, **counts, "failures": failures, "blank": blank}
        whole |= {"usage": report.usage.as_dict(), "cost": cost, "notes": list(report.notes)}
        print_json(whole)
    else:
        click.echo(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
        for note in report.notes:
            say(f"note: {note}")
        for name, reason in report.failures:
            say(f"failed: {name}: {reason}")
    if report.failures:
        raise TaprError(f"{len(report.failures)} of {report.total} queries failed: the same command tries them again")


@contextmanager
def _progress(total: int, settings: LLMSettings | None) -> Iterator[Callable[[BatchReport], None]]:
    """A bar on stderr with what it costs so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[used]}"))
    with Progress(*columns, console=remarks) as bar:
        task = bar.add_task("factorize", total=total, used="")

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


def _load_encoder(name: str | None) -> Encoder:
    from tapr.encoders.registry import DEFAULT_ENCODER, load_encoder

    return load_encoder(name or DEFAULT_ENCODER, say=say)


def _opener(encoder: Encoder | None) -> Callable[[str | Path], Reference]:
    if encoder is None:
        return picture_only
    from tapr.reference import open_reference

    return lambda path: open_reference(path, encoder)
