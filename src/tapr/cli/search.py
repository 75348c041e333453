"""tapr search: rank a gallery by a picture and an edit."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

import tapr
from tapr.cli.factorizer_options import FactorizerOptions, factorizer_options, factorizer_was_given
from tapr.cli.reference_weight_options import reference_weight_options
from tapr.cli.terminal import gallery_option, json_option, output, plain, print_json, say, was_given
from tapr.errors import BadInput
from tapr.query.scoring import ReferenceFeatures, Rule
from tapr.query.spec import ATOM_FACTORS, EditSpec, Weights
from tapr.result import Contribution, Hit, Ranking
from tapr.score.compile import TAU
from tapr.search.export import KINDS, Kind, Picture, export, kind_of


@click.command()
@gallery_option
@click.argument("reference", required=False)
@click.argument("edit", required=False)
@click.option("-k", default=10, show_default=True, type=click.IntRange(min=1), help="How many pictures to return.")
@click.option("--text", help='Search by words alone: --text "a dog on a beach".')
@click.option("--like", metavar="PICTURE", help="Search by a picture alone: a file or a gallery id.")
@click.option("--spec", "spec_path", type=click.Path(), help="A JSON file with target, add, preserve, remove.")
@factorizer_options
@click.option(
    "--method", default="tapr", show_default=True, help="tapr, or one of `tapr eval methods` that needs at most a spec."
)
@click.option("--weights", help="T,A,P,R such as 1,0.5,0.5,0.3, or names such as add=0.8,remove=0.")
@click.option("--tau", default=TAU, show_default=True, help="Temperature of the soft late interaction.")
@reference_weight_options
@click.option("--where", help="A filter on metadata: class = 'dress' and price < 40.")
@click.option(
    "--first-stage",
    metavar="N|exact",
    help="For very large galleries, after tapr first-stage: read at most N pictures exactly, or as many as it takes.",
)
@click.option("--keep-reference", is_flag=True, help="Leave the reference itself in the ranking.")
@click.option("--explain", "report_path", type=click.Path(), help="Write an HTML page with the reasons.")
@click.option("--export", "export_place", type=click.Path(), help="Write the pictures found to a folder, .csv or .zip.")
@click.option("--as", "export_kind", type=click.Choice(KINDS), help="What --export writes, whatever its name ends in.")
@json_option
def search(
    gallery_path: str,
    reference: str | None,
    edit: str | None,
    k: int,
    text: str | None,
    like: str | None,
    spec_path: str | None,
    method: str,
    weights: str | None,
    tau: float | None,
    score: Rule | None,
    reference_weight: float | None,
    reference_features: ReferenceFeatures | None,
    where: str | None,
    first_stage: str | None,
    keep_reference: bool,
    report_path: str | None,
    export_place: str | None,
    export_kind: Kind | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find pictures like REFERENCE (a file or a gallery id), but changed as EDIT says.

    Or by words alone with --text, or by a picture alone with --like; a --spec may also go without REFERENCE.
    """
    if export_kind and not export_place:
        raise BadInput("--as says what --export writes: name a folder or a file with --export")
    chosen = FactorizerOptions(**options)
    with_factorizer = factorizer_was_given()
    read: dict[str, Any] = {
        "tau": tau,
        "score": score,
        "reference_weight": reference_weight,
        "reference_features": reference_features,
    }
    tuned = {name: value for name, value in read.items() if was_given(name)}
    if weights:
        tuned["weights"] = Weights.parse(weights)
    if method != "tapr":
        from tapr.methods.single_search import choose_method

        more_references = {"factorizer": with_factorizer, "explain": report_path}
        choose_method(
            method, {**tuned, **{name: value for name, value in more_references.items() if value}}
        )  # before all that is slow
    gallery = tapr.Gallery.open(gallery_path)
    if not len(gallery):
        raise BadInput(f"the gallery {gallery_path!r} has no pictures yet: let tapr index -g {gallery_path} end first")
    ranking = tapr.search(
        gallery,
        reference,
        edit,
        EditSpec.from_file(spec_path) if spec_path else None,
        k,
        text=text,
        like=like,
        factorizer=chosen.load(gallery.encoder) if with_factorizer and not spec_path else None,
        where=where,
        exclude_reference=not keep_reference,
        method=method,
        first_stage=_budget(first_stage),
        **tuned,
    )
    if report_path:
        from tapr.explain.report import Panel, write_report

        written = write_report(report_path, [Panel(ranking, edit or text)])
        say(f"wrote {written}")
    if export_place:
        _export(ranking, export_place, export_kind or kind_of(export_place))
    if as_json:
        print_json(ranking.to_dict())
    else:
        print_ranking(ranking)


def _export(ranking: Ranking, place: str, kind: Kind) -> None:
    pictures = [
        Picture(hit.id, hit.path, "", {"score": hit.score, "path": hit.path, "caption": hit.caption}, hit.metadata)
        for hit in ranking.hits
    ]
    written = export(pictures, place, kind)
    what = {"copy": "copies of", "link": "links to", "csv": "a list of", "zip": "a ZIP of"}[kind]
    say(f"wrote {what} {written.count:,} pictures: {written.place}")
    for id_, reason in written.missing:
        say(f"left out: {id_}: {reason}")


def _budget(value: str | None) -> Any:
    """A number where it is one; the search says what else it takes."""
    return int(value) if value is not None and value.isascii() and value.isdigit() else value


def print_ranking(ranking: Ranking) -> None:
    out = output()
    spec = ranking.spec
    out.print(f"[bold]target[/]    {plain(spec.target)}")
    for factor in ATOM_FACTORS:
        if spec.atoms(factor):
            out.print(f"[bold]{factor:9}[/] {plain(', '.join(spec.atoms(factor)))}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("rank", justify="right")
    table.add_column("score", justify="right")
    table.add_column("picture", overflow="fold")
    table.add_column("because", overflow="fold", style="dim")
    for hit in ranking.hits:
        parts = sorted((part for part in hit.contributions if part.value), key=lambda part: -abs(part.value))
        because = "  ".join(f"{_short(part)} {part.value:+.3f}" for part in parts[:4])
        table.add_row(str(hit.rank), f"{hit.score:.4f}", _named(hit), plain(because))
    out.print(table)
    how = "" if ranking.method == "tapr" else f"method {ranking.method}, "
    took = sum(ranking.seconds.values())
    say(
        f"{ranking.searched:,} pictures in {took:.2f} s; {how}encoder {ranking.encoder} ({ranking.extractor}), "
        f"factorizer {ranking.factorizer}, {ranking.matched}{ranking.scored}"
    )
    for note in ranking.notes:
        say(f"note: {note}")


def _named(hit: Hit) -> str:
    return plain(hit.id) + (f"\n[dim]{plain(hit.caption)}[/]" if hit.caption else "")


def _short(part: Contribution) -> str:
    """A target's sentence is printed above the table."""
    return "target" if part.factor == "target" else part.text
