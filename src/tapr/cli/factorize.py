"""tapr factorize: a picture and an edit in, the spec out; or a whole file of them, resumable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tapr.cli.batch import Batch, run_batch
from tapr.cli.factorizer_options import FactorizerOptions, factorizer_options
from tapr.cli.terminal import json_option, print_json, say
from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.picture import picture_only
from tapr.factorize.records import HAND, SPEC, RecordFile
from tapr.factorize.replay import spec_record
from tapr.query.edit_kinds import EDIT_KINDS
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec

_BATCH = 'Queries as JSON lines {"id", "reference", "edit"}, as tapr eval --export-queries writes; goes with --out.'
FilePath = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("reference", required=False)
@click.argument("edit", required=False)
@factorizer_options
@click.option("--encoder", metavar="NAME", help="The encoder with which grounded reads the picture.")
@click.option("--spec", type=FilePath, help="A hand-written spec for REFERENCE and EDIT, to be put into --records.")
@click.option("--batch", type=FilePath, help=_BATCH)
@click.option("--out", type=FilePath, help="The records of --batch. The same command resumes where it stopped.")
@click.option(
    "--for",
    "kind",
    metavar="METHOD",
    help="Records of a compared system, for tapr eval, or of all; needs --batch and a server.",
)
@click.option("--prompt", type=FilePath, help="With --for METHOD: a prompt of your own, or the authors', from a file.")
@click.option("--estimate", is_flag=True, help="With --batch: say how many calls and tokens it takes, and stop.")
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
    prompt: Path | None,
    estimate: bool,
    output: Path | None,
    why: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the edit specification of REFERENCE (a picture) and EDIT (how the wanted one differs) as JSON."""
    chosen = FactorizerOptions(**options)
    if (batch is None) != (out is None):
        raise BadInput("--batch and --out go together: queries in, records out", code="missing_option")
    if batch is not None and out is not None:
        if reference is not None or spec is not None or output is not None:
            what = "with --batch the queries come from its file: leave out REFERENCE, EDIT, --spec and -o"
            raise BadInput(what, code="conflicting_options")
        run_batch(Batch(batch, out, kind or SPEC, chosen, encoder, _load_encoder, _opener, prompt), estimate, as_json)
        return
    if prompt is not None:
        what = "--prompt is for records of one compared system: give --for METHOD, --batch FILE and --out FILE"
        raise BadInput(what, code="missing_option")
    if kind is not None or estimate:
        what = "--for makes" if kind is not None else "--estimate is of"
        raise BadInput(f"{what} records of many queries: give them with --batch FILE --out FILE", code="missing_option")
    if reference is None or edit is None:
        raise BadInput('give a picture and an edit: tapr factorize photo.jpg "make it red"', code="missing_option")
    if spec is not None:
        answer = _by_hand(reference, edit, spec, chosen)
    else:
        loaded = _load_encoder(encoder) if chosen.needs_encoder else None
        factorizer = chosen.load(loaded)  # before the picture is read, so that wrong settings are reported at once
        answer = factorizer.factorize(_opener(loaded)(reference), edit)
    _show(answer, output, as_json)
    if why and not as_json:
        _explain(answer)


def _explain(answer: Factorization) -> None:
    """Print how the spec was made: caption, operations, result."""
    caption = answer.details.get("caption")
    if caption is None:
        say("why: no captioner looked at the picture")
        return
    say(f"the picture: {caption['text']} ({'sure' if caption['sure'] else 'unsure'}, {caption['score']:.2f})")
    say(f"the edit was read as: {answer.details['read as']}")
    for operation in answer.details["operations"] or ["nothing to change"]:
        say(f"  {operation}")
    say(f"the result: {answer.spec.target}")
    for sentence, _ in answer.spec.readings:
        say(f"  also read as: {sentence}")
    if answer.spec.kind is not None:
        say(f"the kind of edit: {EDIT_KINDS[answer.spec.kind].says}")


def _show(answer: Factorization, output: Path | None, as_json: bool) -> None:
    text = answer.spec.to_json(indent=2)
    if output is not None:
        try:
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            what = f"cannot write the spec to {str(output)!r}: {error.strerror}"
            raise BadInput(what, code="not_written") from None
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
        what = "--spec puts a hand-written spec into a record file: name it with --records FILE"
        raise BadInput(what, code="missing_option")
    answer = Factorization(EditSpec.from_file(spec), "given")
    RecordFile(chosen.records).append(spec_record(answer, picture_only(reference).sha256, edit, HAND))
    return answer


def _load_encoder(name: str | None) -> Encoder:
    from tapr.encoders.registry import DEFAULT_ENCODER, load_encoder

    return load_encoder(name or DEFAULT_ENCODER, say=say)


def _opener(encoder: Encoder | None) -> Callable[[str | Path], Reference]:
    if encoder is None:
        return picture_only
    from tapr.query.open_reference import open_reference

    return lambda path: open_reference(path, encoder)
