"""tapr search: rank a gallery by a picture and an edit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePath
from typing import Any

import click
from rich.table import Table
from rich.text import Text

import tapr
from tapr.cli.factorizer_options import FactorizerOptions, factorizer_options, factorizer_was_given
from tapr.cli.last_gallery import remember_gallery
from tapr.cli.search_options import search_options
from tapr.cli.terminal import gallery_option, json_option, link, output, plain, print_json, say, say_place
from tapr.errors import BadInput, BadOption
from tapr.options import TAPR, SearchOptions
from tapr.query.factors import BY_NAME
from tapr.query.spec import ATOM_FACTORS, EditSpec
from tapr.result import Hit, Ranking
from tapr.search.export import KINDS, ExportResult, Kind, Picture, export, kind_of
from tapr.search.searcher import Searcher
from tapr.utils.amounts import counted
from tapr.utils.safe_text import printable


@click.command()
@gallery_option
@click.argument("reference", required=False)
@click.argument("edit", required=False)
@click.option("--spec", "spec_path", type=click.Path(), help="A JSON file with target, add, preserve, remove.")
@search_options()
@factorizer_options
@click.option("--explain", "report_path", type=click.Path(), help="Write an HTML page with the reasons.")
@click.option("--export", "export_place", type=click.Path(), help="Write the pictures found to a folder, .csv or .zip.")
@click.option("--as", "export_kind", type=click.Choice(KINDS), help="What --export writes, whatever its name ends in.")
@click.option("--keep-location", is_flag=True, help="With --export: leave in where a photograph was taken (GPS).")
@click.option(
    "--thumbnails/--no-thumbnails",
    default=None,
    help="Show the pictures in the terminal. By default where it can: kitty, iTerm2, sixel.",
)
@click.option("--collage", "collage_path", type=click.Path(), help="Write one picture of the results: .jpg or .png.")
@click.option("--save", "saved_name", metavar="NAME", help="Save this search: tapr searches and tapr watch use it.")
@click.option("--webhook", metavar="URL", help="With --save: where a server posts new pictures that fit.")
@json_option
def search(
    gallery_path: str,
    spec_path: str | None,
    report_path: str | None,
    export_place: str | None,
    export_kind: Kind | None,
    keep_location: bool,
    thumbnails: bool | None,
    collage_path: str | None,
    saved_name: str | None,
    webhook: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Find pictures like REFERENCE (a file or a gallery id), but changed as EDIT says.

    Or by words alone with --text, or by a picture alone with --like; a --spec may also go without REFERENCE.
    """
    _refuse_half_an_option(export_kind, export_place, webhook, saved_name)
    chosen = FactorizerOptions(**{one.name: given.pop(one.name) for one in fields(FactorizerOptions)})
    made = chosen if factorizer_was_given() and not spec_path else None
    spec = EditSpec.from_file(spec_path) if spec_path else None
    options = SearchOptions.of(**given, spec=spec, factorizer=made)  # before all that is slow
    if options.method != TAPR:
        from tapr.methods.single_search import choose_method

        choose_method(options.method, options.given)
        if report_path:
            what = f"--explain shows the parts of tapr's score: leave it out, or the method {options.method}"
            raise BadOption(what, "explain", "conflicting_options")
    from tapr.cli.thumbnails import wanted

    protocol = wanted(thumbnails, as_json=as_json)
    gallery = tapr.Gallery.open(gallery_path)
    if not len(gallery):
        raise BadInput(f"the gallery {gallery_path!r} has no pictures yet: let tapr index -g {gallery_path} end first")
    if made:
        options = options.model_copy(update={"factorizer": made.load(gallery.encoder)})
    searcher = Searcher(gallery)
    ranking = searcher.search(options)
    remember_gallery(gallery_path)
    if saved_name is not None:
        _save(searcher, options, saved_name, webhook)
    if collage_path:
        from tapr.explain.collage import write_collage

        say(f"wrote {write_collage(collage_path, ranking, options.edit or options.text)}")
    report = None
    if report_path:
        from tapr.explain.report import Panel, write_report

        report = write_report(report_path, [Panel(ranking, options.edit or options.text)])
    exported = _export(ranking, export_place, export_kind, keep_location)
    if protocol:
        from tapr.cli.thumbnails import print_thumbnails

        print_thumbnails([(hit.path, f"{hit.rank}. {hit.name}") for hit in ranking.hits], protocol)
    if as_json:
        print_json(ranking.to_dict())
    else:
        print_ranking(ranking)
    if exported and export_place:
        _say_exported(exported, export_place)
    if report:
        say_place("report:", report)  # last, where it is seen


def _refuse_half_an_option(
    export_kind: Kind | None, export_place: str | None, webhook: str | None, saved_name: str | None
) -> None:
    if export_kind and not export_place:
        raise BadInput("--as says what --export writes: name a folder or a file with --export")
    if webhook and not saved_name:
        raise BadInput("--webhook says where new pictures of a saved search are posted: name the search with --save")


def _save(searcher: Searcher, options: SearchOptions, name: str, webhook: str | None) -> None:
    from tapr.search.saved import SavedSearches

    saved = SavedSearches(searcher).save_question(name, options, webhook)
    say(f"saved as {saved.name!r}: a new picture fits from a score of {saved.threshold:.4f} on")


def _export(ranking: Ranking, place: str | None, kind: Kind | None, keep_location: bool) -> ExportResult | None:
    if place is None:
        return None
    pictures = [
        Picture(hit.id, hit.path, "", {"score": hit.score, "path": hit.path, "caption": hit.caption}, hit.metadata)
        for hit in ranking.hits
    ]
    return export(pictures, place, kind or kind_of(place), keep_location=keep_location)


def _say_exported(written: ExportResult, place: str) -> None:
    kind = written.kind
    what = {"copy": "copies of", "link": "links to", "csv": "a list of", "zip": "a ZIP of"}[kind]
    if written.place.name != PurePath(place).name:
        held = "holds something already" if kind in ("copy", "link") else "is there already"
        say(f"{place} {held} and stays as it is")
    say_place(f"wrote {what} {counted(written.count, 'picture')}:", written.place)
    for id_, reason in written.missing:
        say(f"left out: {id_}: {reason}")


def print_ranking(ranking: Ranking) -> None:
    out = output()
    spec = ranking.spec
    for factor, said in (("target", (spec.target,)), *((factor, spec.atoms(factor)) for factor in ATOM_FACTORS)):
        if said:
            out.print(f"[bold]{BY_NAME[factor].label:11}[/] {plain(', '.join(said))}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("rank", justify="right")
    table.add_column("score", justify="right")
    table.add_column("picture", overflow="fold")
    table.add_column("because", overflow="fold", style="dim")
    for hit in ranking.hits:
        parts = sorted((part for part in hit.contributions if part.value), key=lambda part: -abs(part.value))
        because = "  ".join(f"{part.label} {part.value:+.3f}" for part in parts[:4])
        table.add_row(str(hit.rank), f"{hit.score:.4f}", _named(hit), plain(because))
    out.print(table)
    how = "" if ranking.method == "tapr" else f"method {ranking.method}, "
    took = sum(ranking.seconds.values())
    say(
        f"{counted(ranking.searched, 'picture')} in {took:.2f} s; {how}encoder {ranking.encoder} "
        f"({ranking.extractor}), factorizer {ranking.factorizer}, {ranking.matched}{ranking.scored}"
    )
    for note in ranking.notes:
        say(f"note: {note}")


def _named(hit: Hit) -> Text:
    name = link(hit.path or "", hit.id) if hit.path else Text(printable(hit.id))
    return name.append(f"\n{printable(hit.caption)}", "dim not underline") if hit.caption else name
