"""tapr describe: what pictures show, in words."""

from __future__ import annotations

import click

import tapr
from tapr.captions.description import Description
from tapr.cli.terminal import json_option, output, plain, print_json, say
from tapr.errors import BadInput
from tapr.images.decode import BadImage
from tapr.utils.safe_text import printable


@click.command()
@click.argument("pictures", nargs=-1, required=True, metavar="PICTURE...")
@click.option("-n", type=click.IntRange(min=1), default=1, show_default=True, help="How many descriptions of each.")
@click.option("--greedy", "how", flag_value="greedy", help="The most likely word each time: the default for one.")
@click.option("--beam", "how", flag_value="beam", help="The most fitting of a beam: the default for several.")
@click.option("--sample", "how", flag_value="sample", help="Words chosen at random by their probability, for variety.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The random seed of --sample.")
@json_option
def describe(pictures: tuple[str, ...], n: int, how: str | None, seed: int, as_json: bool) -> None:
    """Say what each PICTURE shows, and the chance, from 0 to 1, that the words are right."""
    from tapr.encoders.registry import load_encoder

    encoder = load_encoder(say=say)
    described: dict[str, list[Description]] = {}
    failures: dict[str, str] = {}
    for picture in pictures:
        try:
            described[picture] = tapr.describe(picture, n, how=how, seed=seed, encoder=encoder)
        except BadImage as error:  # the other pictures are still described
            failures[picture] = str(error)
            continue
        if not as_json:
            _print(picture, described[picture])
    if as_json:
        print_json(
            {
                "pictures": [
                    {"path": path, "descriptions": [one.to_dict() for one in descriptions]}
                    for path, descriptions in described.items()
                ],
                "failures": [{"path": path, "reason": reason} for path, reason in failures.items()],
            }
        )
    if failures:
        raise BadInput("; ".join(failures.values()))


def _print(picture: str, descriptions: list[Description]) -> None:
    out = output()
    for place, one in enumerate(descriptions):
        name = plain(picture) if place == 0 else " " * len(printable(picture))
        doubt = "" if one.sure else ", unsure"
        out.print(f"{name}  [bold]{plain(one.text)}[/]  [dim]{one.score:.2f}{doubt}[/]", soft_wrap=True)
