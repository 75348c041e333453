"""tapr eval: a benchmark's metrics for every method and control, with run files that say everything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table as RichTable

from tapr.cli.eval_paper import cirr_words, coverage_option, import_command, overlap_command, report, trec
from tapr.cli.search_options import search_options
from tapr.cli.terminal import NameOf, ProgressBar, json_option, output, print_json, say
from tapr.encoders.extractors import EXTRACTORS
from tapr.errors import BadInput, TaprError
from tapr.evaluate.compare import compare as compare_runs
from tapr.evaluate.compare import differences_of_config
from tapr.evaluate.controls import CONTROLS
from tapr.evaluate.datasets import DATASETS, DatasetRow, load_dataset
from tapr.evaluate.export_queries import export_of
from tapr.evaluate.metrics import summary
from tapr.evaluate.request import BANKS, Request
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.session import evaluate
from tapr.evaluate.significance import interval
from tapr.evaluate.submit import score_predictions
from tapr.evaluate.table import MULTI_PASS_NOTE, OFFLINE_NOTE, marked
from tapr.evaluate.tables import conditions, remarks, tables_of
from tapr.factorize.queries import BatchQuery, write_queries
from tapr.factorize.registry import FACTORIZERS
from tapr.images.frame import FITS
from tapr.methods import BASELINES, METHODS, make_method
from tapr.options import TRAITS, RankOptions
from tapr.utils.amounts import counted

_PathOption = click.Path(path_type=Path)
_CAPTIONS = "Captions of the gallery's pictures, for weimocir: {NAME: [TEXT]} as JSON. Default: the bank's own."
_NO_BASELINES = f"Do not add {', '.join(BASELINES)} to the methods asked for."
_RECORDS = "Made by tapr factorize --batch; repeatable. Kinds of records that are lacking are derived from the specs."
_REFERENCE = "Whether the reference is ranked, if not as the benchmark does; both: as two rows."
_OUT = "The run directory; default runs/DATASET-TIME. The same command goes on with a run that was stopped."
_EXPORT = "Write the split's queries to this file, for tapr factorize --batch, and do nothing else."
_TUNE = "Add a row per method with constants chosen on the development split, or by these runs; on a validation split: "
_TUNE += "try them and keep the figures."
_THETA = "fixed (default), scaled, grid (validation splits only), from:RUN, joint:RUN,RUN, "
_THETA += "leave-one-out:RUN,RUN, or T,A,P,R."

_OPTIONS = tuple(name for name, traits in TRAITS.items() if traits.in_eval)


class _Datasets(click.Group):
    """One command per dataset, including those of other packages. Their code is loaded when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *DATASETS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in DATASETS or cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
        try:
            return _dataset_command(DATASETS[cmd_name])
        except BadInput as error:
            return _refused(cmd_name, str(error))


def _refused(name: str, sentence: str) -> click.Command:
    """A placeholder for a dataset that does not load: using it says why, and the others still work."""

    @click.command(name, help=sentence, context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def command(rest: tuple[str, ...]) -> None:
        raise BadInput(sentence)

    return command


@click.group(cls=_Datasets)
def eval() -> None:
    """Evaluate TAPR and the systems it is compared with over one bank and one set of records."""


def _options(command: Callable[..., Any], row: DatasetRow) -> Callable[..., Any]:
    options: list[Callable[..., Any]] = [
        click.option("--data", type=_PathOption, help="The benchmark's own folder."),
        click.option("--split", help=row.splits),
        click.option("--method", "methods", multiple=True, help=f"all (default), {', '.join(METHODS)}; repeatable."),
        click.option("--no-baselines", is_flag=True, help=_NO_BASELINES),
        click.option("--controls", multiple=True, help=f"all, {', '.join((*CONTROLS, *BANKS))}; repeatable."),
        click.option(
            "--predictions", type=_PathOption, help="Score this file (the submission format) and nothing else."
        ),
        click.option("--subset-predictions", type=_PathOption, help="CIRR's second file, for Rsubset."),
        click.option(
            "-g", "--gallery", type=_PathOption, help="A gallery of the pictures; else one is built and kept."
        ),
        click.option("--encoder", help="For a gallery that is built: clip-b16 (default), open_clip:MODEL/TAG, ..."),
        click.option("--extractor", type=click.Choice(EXTRACTORS), help="For a gallery that is built."),
        click.option("--fit", type=click.Choice(FITS), help="For a gallery that is built: crop (default), pad, ..."),
        click.option("--template", help="For a gallery that is built: a sentence with {} for the phrase."),
        click.option("--centre/--no-centre", default=None, help="For a gallery that is built: centre local vectors."),
        click.option("--gallery-protocol", help="FashionIQ: original (default) or val."),
        click.option("--records", multiple=True, type=_PathOption, help=_RECORDS),
        click.option("--records-model", metavar="NAME", help="Read only the records that this model made."),
        click.option("--records-prompt", metavar="VERSION", help="Read only those of this prompt, such as edit_v3."),
        click.option("--factorizer", type=NameOf(FACTORIZERS), help="Make the records now."),
        click.option("--reference", type=click.Choice(("kept", "removed", "both")), help=_REFERENCE),
        click.option("--theta", default="fixed", help=_THETA),
        click.option("--tune", is_flag=False, flag_value="", metavar="[RUN,RUN]", help=_TUNE),
        search_options(*_OPTIONS),
        click.option(
            "--shared-concept", is_flag=True, help="CIRCO: put what reference and answers share into the edits."
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Ask only so many queries, and say so."),
        click.option(
            "--queries", type=_PathOption, help="Ask only the queries of this file: ids, one per line or JSON."
        ),
        click.option("--captions", type=_PathOption, help=_CAPTIONS),
        click.option("--allow-missing", is_flag=True, help="Rank what is there when pictures are missing, and say so."),
        coverage_option,
        click.option("--export-queries", type=_PathOption, help=_EXPORT),
        click.option("--no-page", is_flag=True, help="Do not write the page of wins and losses."),
        click.option("--out", type=_PathOption, help=_OUT),
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _dataset_command(row: DatasetRow) -> click.Command:
    name = row.name

    def command(
        *,
        predictions: Path | None,
        subset_predictions: Path | None,
        export_queries: Path | None,
        out: Path | None,
        methods: tuple[str, ...],
        no_baselines: bool,
        no_page: bool,
        as_json: bool,
        **asked: Any,
    ) -> None:
        if predictions is not None or export_queries is not None:
            if asked["data"] is None and row.needs_data:
                raise BadInput("give the annotations' folder with --data")
            dataset = load_dataset(name, asked["data"], asked["split"], asked["gallery_protocol"])
            if asked["shared_concept"]:
                dataset = dataset.with_concepts()
            if export_queries is not None:
                _show_export(export_of(dataset, asked["limit"], asked["allow_missing"]), export_queries, as_json)
            if predictions is not None:
                _show_predictions(dataset, predictions, subset_predictions, as_json)
            return
        folder = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
        request = Request(
            name,
            folder,
            methods=methods or ("all",),
            baselines=not no_baselines,
            page=not no_page,
            options=RankOptions.of(**{name: asked.pop(name) for name in _OPTIONS}),
            **asked,
        )
        with ProgressBar() as progress:
            run = evaluate(request, progress)
        _show_run(run, as_json)
        failed = run.metrics["failed"]
        if failed:
            first = next(iter(failed))
            raise TaprError(
                f"{counted(len(failed), 'method')} failed: {first} ({failed[first]}); the rest is in {folder}"
            )

    return click.command(name, help=row.help)(_options(command, row))


@eval.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods, those of other packages too: what each does, the records it needs, what was decided here."""
    rows = [
        {"name": name, "label": row.label, "help": row.help, "records": list(made.kinds), "ours": made.ours}
        for name, row in METHODS.working()
        for made in (make_method(name),)
    ]
    if as_json:
        print_json({"methods": rows, "broken": METHODS.broken})
        return
    table = RichTable("name", "records", "what it does", box=None)
    for made in rows:
        ours = f" Decided here: {made['ours']}." if made["ours"] else ""
        table.add_row(str(made["name"]), ", ".join(made["records"]), f"{made['help']}{ours}")
    output().print(table)
    for sentence in METHODS.broken.values():
        say(sentence)


for _command in (import_command, report, trec, overlap_command, cirr_words):
    eval.add_command(_command)


@eval.command()
@click.argument("first", type=_PathOption)
@click.argument("second", type=_PathOption)
@click.option("--method", help="Only this method of the first run.")
@click.option("--against", help="With that method of the second run; default the same.")
@click.option("--group", help="Only the queries of one kind, such as dress or tone.")
@json_option
def compare(
    first: Path, second: Path, method: str | None, against: str | None, group: str | None, as_json: bool
) -> None:
    """Compare two runs on the same queries: paired differences, intervals, tests, and what was done differently."""
    runs = StoredRun.open(first), StoredRun.open(second)
    found = compare_runs(*runs, method, against, group)
    changed = differences_of_config(*runs)
    if as_json:
        rows = [
            {"method": one.method, "metric": str(one.metric), "first": one.first, "second": one.second,
             "difference": one.difference.interval.value,
             "interval": [one.difference.interval.low, one.difference.interval.high],
             "p": one.difference.p_value, "wins": one.difference.wins, "losses": one.difference.losses,
             "offline": one.offline, "multi_pass": one.multi_pass}
            for one in found
        ]  # fmt: skip
        print_json({"comparisons": rows, "changed": {name: list(pair) for name, pair in changed.items()}})
        return
    table = RichTable("method", "metric", "first", "second", "first minus second (95 %)", "p", "won / lost", box=None)
    for row in found:
        won = f"{row.difference.wins} / {row.difference.losses}"
        shown, _, p = str(row.difference).partition(", p = ")
        name = marked({"label": row.method, "offline": row.offline, "multi_pass": row.multi_pass})
        table.add_row(name, str(row.metric), f"{row.first:.2f}", f"{row.second:.2f}", shown, p, won)
    output().print(table)
    if any(row.offline for row in found):
        say(OFFLINE_NOTE)
    if any(row.multi_pass for row in found):
        say(MULTI_PASS_NOTE)
    for name, (before, after) in changed.items():
        say(f"differs: {name}: {_short(before)} / {_short(after)}")


def _show_export(queries: list[BatchQuery], path: Path, as_json: bool) -> None:
    write_queries(path, queries)
    blank = [query.id for query in queries if not query.edit.strip()]
    if as_json:
        print_json({"queries": str(path), "count": len(queries), "blank": blank})
        return
    said = f", {len(blank)} without an edit ({', '.join(blank)})" if blank else ""
    output().print(f"{path}: {counted(len(queries), 'query', 'queries')}{said}", markup=False, soft_wrap=True)
    say(f"next: tapr factorize --for all --batch {path} --out records.jsonl")


def _show_predictions(dataset: Any, predictions: Path, subset: Path | None, as_json: bool) -> None:
    outcome = score_predictions(predictions, dataset, subset)
    protocol = dataset.protocol
    wanted = [metric for metric in protocol.metrics if metric.kind != "Rsubset" or subset is not None]
    found = summary(outcome, wanted, protocol.grouped)
    if as_json:
        print_json({"protocol": protocol.to_dict(), "metrics": found})
        return
    for metric in wanted:
        output().print(f"{metric!s:10} {interval(outcome, metric)}", markup=False)
    for name, row in found.get("groups", {}).items():
        values = "  ".join(f"{key} {value:.2f}" for key, value in row.items() if key != "queries")
        output().print(f"  {name} ({row['queries']} queries): {values}", markup=False)
    say(protocol.sentence())


def _show_run(run: StoredRun, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(run.folder), "config": run.config, "metrics": run.metrics})
        return
    console = output()
    for shown in tables_of(run):
        columns = shown.brief or shown.columns
        table = RichTable(title=shown.title, box=None, title_justify="left")
        for column in columns:
            table.add_column(column, no_wrap=True, justify="left" if shown.is_words(column) else "right")
        for line in shown.lines(columns):
            table.add_row(*line)
        console.print(table)
        if shown.brief:
            say(f"all columns are in {shown.name}.csv")
    for sentence in conditions(run):
        say(sentence)
    for sentence in remarks(run):
        say(sentence)
    output().print(f"Everything is in {run.folder}", markup=False, soft_wrap=True)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
