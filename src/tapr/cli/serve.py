"""tapr serve: the HTTP API and the page on one gallery or several."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from tapr.cli.first_stage import advice
from tapr.cli.terminal import NameOf, say
from tapr.errors import BadInput
from tapr.factorize.registry import FACTORIZERS
from tapr.gallery import Gallery
from tapr.server import supervised, traces
from tapr.server.access import read_tokens, tokens_of_environment
from tapr.server.logs import configure
from tapr.server.settings import DEFAULT_PORT, Settings, is_loopback
from tapr.store.quota import Quota
from tapr.utils.amounts import counted
from tapr.utils.extras import install_hint
from tapr.utils.threads import share_memory_arenas

if TYPE_CHECKING:
    from tapr.factorize.base import Factorizer

_OF_THE_EXTRA = ("fastapi", "starlette", "uvicorn", "multipart", "python_multipart")


@click.command()
@click.argument("galleries", nargs=-1, metavar="[NAME=FOLDER]...")
@click.option("-g", "--gallery", "gallery_path", type=click.Path(), help="The folder of the one gallery to serve.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--token", envvar="TAPR_TOKEN", help="A secret that every client must send; 'auto' makes one. Or set TAPR_TOKEN."
)
@click.option(
    "--write-token", envvar="TAPR_WRITE_TOKEN", help="A secret that lets its holder put and delete pictures too."
)
@click.option("--tokens", type=click.Path(), help="A TOML file with the tokens of each gallery.")
@click.option("--allow-write", is_flag=True, help="Who may read may put and delete pictures.")
@click.option(
    "--fetch",
    multiple=True,
    metavar="PLACE",
    help="Where pictures may be fetched from: a host, network or s3://bucket/.",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="[NAME=]LIMIT",
    help="Pictures or bytes that a gallery may hold: 5000, 2GB or 5000,2GB. Without NAME: each gallery.",
)
@click.option(
    "--webhook", multiple=True, metavar="HOST", help="Where new matches of saved searches may be posted to: a host."
)
@click.option("--rate", help="Requests of one token or address, such as 5/s or 100/m; more get 429.")
@click.option("--name", "names", multiple=True, help="A further host name that the server answers to.")
@click.option("--factorizer", type=NameOf(FACTORIZERS), help="How edits become specs; default grounded.")
@click.option(
    "--write-wait", default=Settings.write_wait, show_default=True, help="Seconds that a write waits for an index run."
)
@click.option("--queue", default=Settings.queue, show_default=True, help="Requests let in at a time; more get 429.")
@click.option("--seconds", default=Settings.seconds, show_default=True, help="Time limit of one answer.")
@click.option("--max-upload", default=20, show_default=True, help="Megabytes of an uploaded picture.")
@click.option("--origin", "origins", multiple=True, help="A site whose pages may ask, such as https://shop.example.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; an address or a network.",
)
@click.option(
    "--show-in-folder", is_flag=True, help="Let the page open this machine's file manager; loopback without token only."
)
@click.option("--show-paths", is_flag=True, help="Let clients see and filter by paths of files on this machine.")
@click.option("--show-location", is_flag=True, help="Let clients see and filter by latitude and longitude.")
@click.option("--strip-location", is_flag=True, help="Send originals without the place where they were taken (GPS).")
@click.option("--ray", "address", metavar="ADDRESS", help="Search on this Ray cluster; see tapr cluster start.")
@click.option("--partial", is_flag=True, help="With --ray: answer without shard groups that are missing, and say so.")
@click.option("--log", "log_requests", is_flag=True, help="Log every request on stderr.")
@click.option("--json-log", is_flag=True, help="The same, each line one JSON object.")
@click.option("--otel", is_flag=True, help="Send spans to OpenTelemetry, as OTEL_* variables say (extra otel).")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one line of JSON when ready.")
def serve(**options: Any) -> None:
    """Serve the page at / and the HTTP API under /api; its description is at /docs.

    One gallery with -g, or several as NAME=FOLDER: the page offers them, their routes are under /api/galleries/NAME,
    and the plain routes are the first one's.
    """
    if options["token"] == "auto":
        options["token"] = secrets.token_urlsafe(24)
        say(f"token: {options['token']}")  # only a generated token is shown
    folders, settings = folders_and_settings(options)
    address, partial, as_json = options["address"], options["partial"], options["as_json"]
    configure(options["log_requests"] or options["json_log"], options["json_log"])
    if options["otel"]:
        traces.begin()
    for name in settings.access(folders).closed_by_write_tokens():
        where = f"{name}: " if name else ""
        say(
            f"{where}reading needs the write token too, because there is no token for reading; --allow-write opens both"
        )
    if address is not None and os.name == "posix" and not supervised.is_supervised():
        raise click.exceptions.Exit(_supervised(settings))
    opened: dict[str, Gallery] = {}
    for name, folder in folders.items():
        opened[name] = _sharing_encoder(_open(folder, address, partial, settings.seconds), opened.values())
        if address is None and (hint := advice(opened[name])):
            say(f"{counted(len(opened[name]), 'picture')}: {hint}")
    run_server(opened.get("", opened), settings, options["factorizer"], as_json=as_json)


def folders_and_settings(options: Mapping[str, Any]) -> tuple[dict[str, str], Settings]:
    """Return the folders by gallery name and the settings that these options of `tapr serve` mean."""
    folders = _folders(options["gallery_path"], options["galleries"])
    names = [name for name in folders if name]
    if options["tokens"] and not names:
        raise BadInput("--tokens is for galleries that have names: tapr serve NAME=FOLDER ...")
    if options["max_upload"] < 1:
        raise BadInput(f"--max-upload must be 1 or more, not {options['max_upload']}")
    tokens = tokens_of_environment(names) | (read_tokens(options["tokens"], names) if options["tokens"] else {})
    same = {name: options[name] for name in options.keys() & {field.name for field in fields(Settings)}}
    return folders, Settings(
        **{
            **same,
            "tokens": tokens,
            "quotas": _quotas(options["quotas"], names),
            "webhook_secret": os.environ.get("TAPR_WEBHOOK_SECRET") or None,
            "limits": replace(Settings.limits, bytes=options["max_upload"] * 2**20),
        }
    )


def _supervised(settings: Settings) -> int:
    """Ray ends a process that has lost its cluster's head: the server runs in one of its own."""
    from tapr.server.connections import listen
    from tapr.server.supervisor import Supervisor

    with listen(settings) as listening:
        return Supervisor([sys.executable, "-m", "tapr.cli.main", *sys.argv[1:]], listening, say).run()


def _folders(path: str | None, galleries: tuple[str, ...]) -> dict[str, str]:
    """Galleries by name; the one given with -g has the empty name."""
    if path is not None and not galleries:
        return {"": path}
    if path is not None or not galleries:
        raise BadInput("say what to serve: -g FOLDER for one gallery, or NAME=FOLDER for each of several")
    out: dict[str, str] = {}
    for text in galleries:
        name, sign, folder = text.partition("=")
        if not sign or not name or not folder:
            raise BadInput(f"write a gallery as NAME=FOLDER, not {text!r}; or serve one with -g FOLDER")
        if name in out:
            raise BadInput(f"two galleries are called {name!r}: give each its own name")
        out[name] = folder
    return out


def _quotas(given: tuple[str, ...], galleries: list[str]) -> dict[str, Quota]:
    """By gallery; "" for all that have none of their own."""
    out: dict[str, Quota] = {}
    for text in given:
        name, sign, limit = text.rpartition("=")
        if sign and name not in galleries:
            known = ", ".join(galleries) or "one without a name: leave NAME= out"
            raise BadInput(f"--quota {text} is for a gallery that is not served here: there is {known}")
        if name in out:
            raise BadInput(f"--quota was given twice for {name or 'all galleries'}: write both limits as 5000,2GB")
        out[name] = Quota.parse(limit)
    return out


def _sharing_encoder(gallery: Gallery, others: Iterable[Gallery]) -> Gallery:
    """Galleries with the same encoder share it."""
    for other in others:
        manifest, theirs = gallery.manifest, other.manifest
        same = manifest.card == theirs.card and manifest.image_mean is None and theirs.image_mean is None
        if same:
            return gallery.reopen(other.encoder)
    return gallery


def _open(path: str, address: str | None, partial: bool, seconds: float) -> Gallery:
    if address is None:
        if partial:
            raise BadInput("--partial is for a search on a Ray cluster: name it with --ray, or leave it out")
        return Gallery.open(path)
    from tapr.cluster.gallery import ClusterGallery
    from tapr.cluster.group_calls import RetryPolicy

    retry_policy = RetryPolicy(min(seconds, RetryPolicy.seconds))
    return ClusterGallery.open(path, address=address, partial=partial, retry_policy=retry_policy)


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
    gallery: Gallery | Mapping[str, Gallery],
    settings: Settings,
    factorizer: str | Factorizer | None = None,
    *,
    as_json: bool = False,
) -> None:
    try:
        from tapr.server.app import create_app
        from tapr.server.connections import listen, server_of
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_EXTRA:
            raise  # another error, which installing the extra would not fix
        raise BadInput(f"the server needs {error.name}: {install_hint('serve')}") from None

    share_memory_arenas()  # before the threads of the server start
    # before the encoder is loaded, so that a port in use is reported at once
    with supervised.inherited_socket() or listen(settings) as listening:
        server = server_of(create_app(gallery, settings, factorizer), settings)
        address = _address(settings, listening.getsockname()[1])
        pictures = len(gallery) if isinstance(gallery, Gallery) else sum(map(len, gallery.values()))
        if as_json:
            print(json.dumps({"url": address, "pid": os.getpid(), "pictures": pictures}), flush=True)
        secret = "?token=TOKEN" if settings.token or settings.tokens else ""
        say(f"{counted(pictures, 'picture')} at {address}/{secret} (API at {address}/docs); stop with Ctrl-C")
        supervised.say_ready()
        server.run(sockets=[listening])


def _address(settings: Settings, port: int) -> str:
    host = settings.host if is_loopback(settings.host) else socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
