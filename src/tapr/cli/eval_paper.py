"""tapr eval import, report, figure, trec, rerank: what is made of runs that are done."""

from __future__ import annotations

from pathlib import Path

import click

from tapr.cli.terminal import json_option, output, print_json, say
from tapr.errors import BadInput
from tapr.evaluate.coverage import WHOLE
from tapr.evaluate.figure import Example, draw_cells, draw_methods
from tapr.evaluate.multi_pass import SecondPass, add_second_pass, first_pass
from tapr.evaluate.plots import save
from tapr.evaluate.report import write_report
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.second_look import VERIFY, WAYS
from tapr.evaluate.server_scores import import_scores
from tapr.evaluate.table import multi_pass_note
from tapr.evaluate.tables import write_tables
from tapr.evaluate.trec import write_trec
from tapr.factorize.settings import LLMSettings

_Path = click.Path(path_type=Path)
_WAY = "verify: a mark per picture, so many requests per query; order: all on one sheet, one request per query."
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
@click.option("--out", type=_Path, default=Path("paper"), show_default=True, help="The folder for tables and figures.")
@coverage_option
@json_option
def report(runs: tuple[Path, ...], out: Path, coverage: float | None, as_json: bool) -> None:
    """The paper's tables and sweeps with the figures of RUNS in them: one file for each, and a page with all."""
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


@click.command()
@click.argument("run", type=_Path)
@click.option("--method", default="tapr", show_default=True, help="Whose ranking is looked at again.")
@click.option("--way", type=click.Choice(WAYS), default=VERIFY, show_default=True, help=_WAY)
@click.option("--top", default=10, show_default=True, type=click.IntRange(2, 50), help="How many pictures per query.")
@click.option("--llm-url", metavar="URL", help="OpenAI-compatible server.  [env: TAPR_LLM_BASE_URL]")
@click.option("--llm-model", metavar="NAME", help="Its model, which must see pictures.  [env: TAPR_LLM_MODEL]")
@click.option("--data", type=_Path, help="The benchmark's folder, if it is no longer where the run read it.")
@click.option("--estimate", is_flag=True, help="Only say how many requests it would take.")
@json_option
def rerank(
    *,
    run: Path,
    method: str,
    way: str,
    top: int,
    llm_url: str | None,
    llm_model: str | None,
    data: Path | None,
    estimate: bool,
    as_json: bool,
) -> None:
    """Let a vision language model look at the first pictures of each query of RUN again: a multi-pass row.

    The row is marked in every table, with its cost in requests. A stopped pass goes on.
    """
    stored, asked = StoredRun.open(run), SecondPass(method, way, top)
    requests = asked.requests(len(first_pass(stored, asked).top))
    if estimate:
        if as_json:
            print_json({"run": str(run), "method": asked.name, "requests": requests})
        else:
            output().print(f"{asked.name}: at least {requests:,} requests", markup=False)
        return
    settings = LLMSettings.load({"base_url": llm_url, "model": llm_model})
    made = add_second_pass(stored, asked, settings, data, say)
    rows = {**made.metrics["methods"], **made.metrics.get("ranked", {})}
    if as_json:
        print_json({"run": str(run), "method": asked.name, "row": rows[asked.name]})
        return
    row = rows[asked.name]
    shown = "" if row.get(str(made.main)) is None else f": {made.main} {row[str(made.main)]:.2f}"
    output().print(f"{row['label']}{shown}; it is in the tables of {run}", markup=False, soft_wrap=True)
    for sentence in multi_pass_note([row]):
        say(sentence)


@click.command()
@click.argument("run", type=_Path)
@click.argument("query")
@click.option("--methods", default="tapr", show_default=True, help="Names with commas between, one row each.")
@click.option("-k", "count", default=5, show_default=True, type=click.IntRange(1, 20), help="Pictures of each.")
@click.option("--cells", is_flag=True, help="Instead: a right answer's rank in the four cells of the matched control.")
@click.option("--picture", help="Which right answer, with --cells; default the first.")
@click.option("--data", type=_Path, help="The benchmark's folder, if it is no longer where the run read it.")
@click.option("--out", type=_Path, help="Without a suffix; default RUN/figures/QUERY-methods or QUERY-cells.")
@json_option
def figure(
    *,
    run: Path,
    query: str,
    methods: str,
    count: int,
    cells: bool,
    picture: str | None,
    data: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Draw one QUERY of RUN: the pictures that methods rank first, or its answer's rank in the four cells."""
    if picture is not None and not cells:
        raise BadInput("--picture names a right answer for --cells")
    example = Example.of(StoredRun.open(run), query, data)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    drawn = draw_cells(example, picture) if cells else draw_methods(example, names, count)
    written = save(drawn, out or run / "figures" / f"{query}-{'cells' if cells else 'methods'}")
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        output().print(str(path), markup=False, soft_wrap=True)
