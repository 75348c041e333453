"""tapr serve: the HTTP API and the page on one gallery."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tapr.commands.terminal import NameOf, gallery_option, say
from tapr.errors import BadInput
from tapr.extras import install_hint
from tapr.factorize.registry import FACTORIZERS
from tapr.gallery import Gallery
from tapr.serve.logs import configure
from tapr.serve.settings import DEFAULT_PORT, Settings, is_loopback

if TYPE_CHECKING:
    from tapr.factorize.base import Factorizer

_OF_THE_EXTRA = ("fastapi", "starlette", "uvicorn", "multipart", "python_multipart")


@click.command()
@gallery_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--token", envvar="TAPR_TOKEN", help="A secret that every client must send; 'auto' makes one. Or set TAPR_TOKEN."
)
@click.option("--name", "names", multiple=True, help="A further host name that the server answers to.")
@click.option("--factorizer", type=NameOf(FACTORIZERS), help="How edits become specs; default grounded.")
@click.option("--queue", default=Settings.queue, show_default=True, help="Requests let in at a time; more get 429.")
@click.option("--seconds", default=Settings.seconds, show_default=True, help="Time limit of one answer.")
@click.option("--max-upload", default=20, show_default=True, help="Megabytes of an uploaded picture.")
@click.option("--origin", "origins", multiple=True, help="A site whose pages may ask, such as https://shop.example.")
@click.option(
    "--show-in-folder", is_flag=True, help="Let the page open this machine's file manager; loopback without token only."
)
@click.option("--show-paths", is_flag=True, help="Let clients see and filter by paths of files on this machine.")
@click.option("--ray", "address", metavar="ADDRESS", help="Search on this Ray cluster; see tapr cluster start.")
@click.option("--partial", is_flag=True, help="With --ray: answer without shard groups that are missing, and say so.")
@click.option("--log", "log_requests", is_flag=True, help="Log every request on stderr.")
@click.option("--json-log", is_flag=True, help="The same, each line one JSON object.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one line of JSON when ready.")
def serve(
    gallery_path: str,
    host: str,
    port: int,
    token: str | None,
    names: tuple[str, ...],
    factorizer: str | None,
    queue: int,
    seconds: float,
    max_upload: int,
    origins: tuple[str, ...],
    show_in_folder: bool,
    show_paths: bool,
    address: str | None,
    partial: bool,
    log_requests: bool,
    json_log: bool,
    as_json: bool,
) -> None:
    """Serve the page at / and the HTTP API under /api; its description is at /docs."""
    made = secrets.token_urlsafe(24) if token == "auto" else None
    token = made or token
    settings = Settings(host, port, token, names, origins, show_in_folder, show_paths, queue=queue, seconds=seconds)
    if max_upload < 1:
        raise BadInput(f"--max-upload must be 1 or more, not {max_upload}")
    settings = replace(settings, limits=replace(settings.limits, bytes=max_upload * 2**20))
    configure(log_requests or json_log, json_log)
    if made:
        say(f"token: {made}")  # one that was given is never shown
    run_server(_open(gallery_path, address, partial, seconds), settings, factorizer, as_json=as_json)


def _open(path: str, address: str | None, partial: bool, seconds: float) -> Gallery:
    if address is None:
        if partial:
            raise BadInput("--partial is for a search on a Ray cluster: name it with --ray, or leave it out")
        return Gallery.open(path)
    from tapr.cluster.ask import Patience
    from tapr.cluster.gallery import ClusterGallery

    patience = Patience(min(seconds, Patience.seconds))
    return ClusterGallery.open(path, address=address, partial=partial, patience=patience)


def serve_gallery(
    gallery: Gallery,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    factorizer: str | Factorizer | None = None,
) -> None:
    """Serve an opened gallery until interrupted."""
    run_server(gallery, Settings(host, port, token), factorizer)


def run_server(
    gallery: Gallery, settings: Settings, factorizer: str | Factorizer | None = None, *, as_json: bool = False
) -> None:
    try:
        from tapr.serve.app import create_app
        from tapr.serve.connections import listen, server_of
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_EXTRA:
            raise  # something else is wrong, which the extra does not mend
        raise BadInput(f"the server needs {error.name}: {install_hint('serve')}") from None
    with listen(settings) as listening:  # before the encoder is loaded: a taken port is told at once
        server = server_of(create_app(gallery, settings, factorizer), settings)
        address = _address(settings, listening.getsockname()[1])
        if as_json:
            print(json.dumps({"url": address, "pid": os.getpid(), "pictures": len(gallery)}), flush=True)
        secret = "?token=TOKEN" if settings.token else ""
        say(f"{len(gallery):,} pictures at {address}/{secret} (API at {address}/docs); stop with Ctrl-C")
        server.run(sockets=[listening])


def _address(settings: Settings, port: int) -> str:
    host = settings.host if is_loopback(settings.host) else socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
