"""tapr eval import, report, trec, overlap and cirr-words: what needs no new run."""

from __future__ import annotations

from pathlib import Path

import click

from tapr.cli.terminal import NameOf, json_option, output, print_json, say
from tapr.encoders.registry import DEFAULT_ENCODER, load_encoder
from tapr.errors import BadInput
from tapr.evaluate.cirr_words import compare_readers, readers
from tapr.evaluate.coverage import WHOLE
from tapr.evaluate.datasets import DATASETS, load_dataset
from tapr.evaluate.overlap import overlap
from tapr.evaluate.report import write_report
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.server_scores import import_scores
from tapr.evaluate.table import write_tables_to
from tapr.evaluate.tables import write_tables
from tapr.evaluate.trec import write_trec

_Path = click.Path(path_type=Path)
coverage_option = click.option(
    "--coverage",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Accept records of so few queries: 0.9 is nine of ten. Submissions, grids and reports want all, rows half.",
)


@click.command("import")
@click.argument("run", type=_Path)
@click.argument("scores", type=_Path)
@click.option("--method", help="Whose scores they are; not needed where the file says it: {METHOD: {METRIC: VALUE}}.")
@json_option
def import_command(run: Path, scores: Path, method: str | None, as_json: bool) -> None:
    """Bring the scores that a benchmark's server gave for a submission into the tables of RUN."""
    stored = StoredRun.open(run)
    if not stored.metrics.get("ranked"):
        raise BadInput(f"the answers of {run} are here, and its tables have its scores: there is nothing to import")
    known = import_scores(stored, scores, method)
    write_tables(stored)
    if as_json:
        print_json({"run": str(run), "server": known})
        return
    for name, found in known.items():
        values = ", ".join(f"{metric} {value:.2f}" for metric, value in found.items())
        output().print(f"{name}: {values}", markup=False, soft_wrap=True)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=_Path)
@click.option("--out", type=_Path, default=Path("paper"), show_default=True, help="The folder for the tables.")
@coverage_option
@json_option
def report(runs: tuple[Path, ...], out: Path, coverage: float | None, as_json: bool) -> None:
    """Write the paper's tables with the figures of RUNS in them: one file for each, and a page with all."""
    needed = WHOLE if coverage is None else coverage
    written = write_report([StoredRun.open(run) for run in runs], out, needed)
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    output().print(f"{out / 'paper.md'} and {len(written) - 1} files beside it", markup=False, soft_wrap=True)


@click.command()
@click.argument("run", type=_Path)
@click.option("--out", type=_Path, help="The folder for the files; default RUN/trec.")
@click.option("--data", type=_Path, help="The benchmark's folder, if it is no longer where the run read it.")
@json_option
def trec(run: Path, out: Path | None, data: Path | None, as_json: bool) -> None:
    """Write RUN as TREC run files and qrels, which ir_measures, ranx and trec_eval read."""
    written = write_trec(StoredRun.open(run), out or run / "trec", data)
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        output().print(str(path), markup=False, soft_wrap=True)


@click.command("cirr-words")
@click.option("--data", required=True, type=_Path, help="CIRR's folder: captions/ and image_splits/; no pictures.")
@click.option("--captions", required=True, type=_Path, help="WeiMoCIR's captions of CIRR's pictures, as JSON.")
@click.option("--encoder", default=DEFAULT_ENCODER, show_default=True, help="Whose text tower ranks the captions.")
@click.option("--records", multiple=True, type=_Path, help="Specs of another factorizer, by query id; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), help="Ask only so many queries.")
@click.option("--out", type=_Path, help="Also write the table into this folder.")
@json_option
def cirr_words(
    *,
    data: Path,
    captions: Path,
    encoder: str,
    records: tuple[Path, ...],
    limit: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Rank CIRR's captions, without its pictures, by what factorizers read from caption and edit."""
    table, _ = compare_readers(data, captions, load_encoder(encoder, say=say), readers(records), limit)
    if out is not None:
        write_tables_to(out, [table], table.name)
    if as_json:
        print_json({"rows": list(table.rows), "notes": list(table.notes)})
        return
    output().print(table.markdown(), markup=False, soft_wrap=True)


@click.command("overlap")
@click.argument("dataset", metavar="BENCHMARK", type=NameOf(DATASETS))
@click.argument("first", type=_Path)
@click.argument("second", type=_Path)
@click.option("--data", type=_Path, help="The benchmark's own folder.")
@click.option("--split", help="Its split, such as test1.")
@json_option
def overlap_command(
    dataset: str, first: Path, second: Path, data: Path | None, split: str | None, as_json: bool
) -> None:
    """Compare the rankings of two submission files of BENCHMARK: what both have among the first k."""
    table = overlap(first, second, load_dataset(dataset, data, split))
    if as_json:
        print_json({"rows": list(table.rows), "notes": list(table.notes)})
        return
    output().print(table.markdown(), markup=False, soft_wrap=True)
