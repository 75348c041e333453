"""`tapr models`: which encoders there are, which files models are made of, where those come from, and getting them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tapr.encoders import extractors, model_files, registry, weights
from tapr.encoders.row import ListedModel
from tapr.errors import BadInput

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def models() -> None:
    """Encoders and where their weights come from."""


@models.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List the encoders, and the files of weights with their sources."""
    rows = [_row(known) for known in registry.known_models()]
    if as_json:
        click.echo(json.dumps({"models": rows, "files": model_files.rows(), "home": str(weights.home())}, indent=2))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("name", "d", "M", "here"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("d", "M") else "left")
    for title in ("weights from", "licence"):
        table.add_column(title)
    for row in rows:
        cells = (row["name"], row["dim"], row["locals"], _HERE[row["present"]], row["origin"], row["licence"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    console = Console()
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    console.print(table)
    click.echo()
    _print_files()
    click.echo()
    click.echo(f"Extractors of local vectors: {', '.join(extractors.EXTRACTORS)}")
    click.echo(f"Fetched weights are kept in {weights.home()}")


@models.command()
@click.argument("name", default=registry.DEFAULT_ENCODER)
@click.option("--from", "given", type=click.Path(path_type=Path), help="Take the weights from this file.")
@click.option("--verify", is_flag=True, help="Hash the stored weights again; fetch them anew if they are damaged.")
@as_json
def pull(name: str, given: Path | None, verify: bool, as_json: bool) -> None:
    """Fetch the weights of NAME once (an encoder; default: clip-b16) and keep them for offline use."""
    files = _files_of(name)
    if given is not None and len(files) != 1:
        raise BadInput(f"{name} has no weight file to take from {str(given)!r}: leave --from out")
    paths = [_pull(file, given, verify) for file in files]
    if as_json:
        click.echo(json.dumps({"name": name, "files": paths}, indent=2))
        return
    for path in paths:
        click.echo(f"{path['path']} ({path['bytes'] / 1e6:.0f} MB, sha256 {path['sha256']})")
    if not paths:
        click.echo(f"{name} needs no weights")


def _files_of(name: str) -> tuple[weights.WeightFile, ...]:
    """Return the files that an encoder or a factorizer of this name fetches."""
    known = next((known for known in registry.known_models() if known.name == name), None)
    files = tuple(file for file in model_files.FETCHED if file.owner == name) if known is None else known.files
    family = name.partition(":")[0]
    is_family = family != name and family in registry.ENCODERS and bool(registry.ENCODERS[family].takes)
    if known is None and not files and not is_family:
        raise BadInput(f"unknown encoder {name!r}: `tapr models list` shows the names")
    if not files and (known is None or known.kept_elsewhere):
        keeper = family if known is None else known.kept_elsewhere
        raise BadInput(f"the weights of {name} are fetched and kept by {keeper} when it is first used")
    return files


def _pull(file: weights.WeightFile, given: Path | None, verify: bool) -> dict[str, Any]:
    def say(line: str) -> None:
        click.echo(line, err=True)

    if verify and weights.is_present(file) and not weights.verify(file):
        say(f"the stored {file.file_name} is damaged")
    path = weights.fetch(file, say, given)
    return {"path": str(path), "bytes": file.size, "sha256": file.sha256, "licence": file.licence}


def _print_files() -> None:
    """One block per file, since a table would truncate the hashes."""
    for row in model_files.rows():
        here = "here" if row["present"] else "not here"
        click.echo(f"{row['name']}: {row['bytes'] / 1e6:.1f} MB, {row['licence']}, {here}")
        click.echo(f"  sha256 {row['sha256']}")
        click.echo(f"  from {row['source']}; second source: {row['second_source']}")


_PIPED_WIDTH = 160  # wider than a terminal: output to a file is not wrapped
_HERE = {True: "yes", False: "no", None: "-"}


def _row(known: ListedModel) -> dict[str, Any]:
    return {
        "name": known.name,
        "dim": known.dim,
        "locals": known.locals_count,
        "extractors": list(known.extractors),
        "origin": known.origin,
        "licence": known.licence,
        "present": known.present,
        "files": [
            {"path": str(file.path), "bytes": file.size, "sha256": file.sha256, "present": weights.is_present(file)}
            for file in known.files
        ],
    }
