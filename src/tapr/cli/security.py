"""Describe what a server would expose, to whom, and with which limits: `tapr doctor --security`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from tapr.cli.finding import Finding
from tapr.cli.serve import folders_and_settings, serve
from tapr.images.workers import MEMORY_LIMIT_HOLDS, ORDINARY_MEMORY
from tapr.server.access import Access
from tapr.server.settings import Settings, is_loopback
from tapr.utils.amounts import counted, file_size
from tapr.utils.arguments import folder_of


def security_findings(serve_options: Sequence[str]) -> list[Finding]:
    """Return findings about `tapr serve` with these options, which is not started."""
    options = serve.make_context("serve", list(serve_options)).params
    if options["token"] == "auto":
        options["token"] = "made when the server starts"
    folders, settings = folders_and_settings(options)
    access = settings.access(folders)
    findings = [_address(settings)]
    for name, folder in folders.items():
        findings += _gallery(name, folder, settings, access)
    return [*findings, *_places(settings), *_limits(settings), _decoding(settings)]


def _address(settings: Settings) -> Finding:
    if is_loopback(settings.host):
        return Finding("address", True, f"{settings.host}: processes of this machine, and nobody else")
    who = "whoever can reach this machine; a token is needed, and everything is sent in the clear"
    return Finding("address", True, f"{settings.host}: {who}", "put a proxy with TLS in front of it")


def _gallery(name: str, folder: str, settings: Settings, access: Access) -> Iterator[Finding]:
    title = f"gallery {name}" if name else "gallery"
    tokens = access.galleries[name]
    readers = "everyone who reaches the address" if access.is_open(name) else "whoever has a token"
    what = f"all pictures, metadata and saved searches may be read by {readers}"
    only_writers = "the write token is needed for reading too" if name in access.closed_by_write_tokens() else ""
    yield Finding(f"{title}: reading", True, what, only_writers)
    writers = readers if access.allow_write else "whoever has a write token" if tokens.write else "nobody"
    quota = "" if writers == "nobody" or settings.quota(name) else "limit what is put with --quota"
    yield Finding(f"{title}: writing", True, f"pictures may be put and deleted by {writers}", quota)
    path = Path(folder_of(folder))
    if os.name == "posix" and path.is_dir():
        is_open = bool(path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        others = "other users of this machine may change what is found" if is_open else "only its owner may write to it"
        yield Finding(f"{title}: folder", not is_open, f"{path}: {others}", f"chmod go-w {path}" if is_open else "")


def _places(settings: Settings) -> Iterator[Finding]:
    fetch = ", ".join(settings.fetch) or "nowhere"
    yield Finding("fetching", True, f"pictures named by address or path are read from {fetch}")
    unsigned = (
        "" if not settings.webhook or settings.webhook_secret else "set TAPR_WEBHOOK_SECRET to sign what is posted"
    )
    yield Finding("webhooks", True, f"new matches are posted to {', '.join(settings.webhook) or 'nowhere'}", unsigned)
    yield Finding("other sites", True, f"pages that may ask: {', '.join(settings.origins) or 'none'}")
    proxies = ", ".join(settings.proxies) or "nobody"
    yield Finding("proxies", True, f"X-Forwarded-For and X-Forwarded-Proto are believed from {proxies}")
    paths = "shown, and filters may ask for them" if settings.show_paths else "not shown"
    yield Finding("paths of files", True, paths)
    latitude = "shown" if settings.show_location else "not shown"
    yield Finding("latitude and longitude", True, latitude)
    place = "left out of" if settings.strip_location else "kept in"
    yield Finding("places of photographs", True, f"{place} originals that are sent")
    if settings.show_in_folder:
        yield Finding("file manager", True, "the page may open it on this machine (--show-in-folder)")


def _limits(settings: Settings) -> Iterator[Finding]:
    rate = "" if settings.rate or is_loopback(settings.host) else "limit each client with --rate"
    requests = f"{settings.queue} worked on or waiting, {settings.seconds:g} seconds each"
    yield Finding("requests", True, f"{requests}, rate {settings.rate or 'unlimited'}", rate)
    connections = f"{settings.connections}, fewer with few open files; {settings.idle_seconds:g} seconds idle"
    yield Finding("connections", True, connections)
    upload = f"{file_size(settings.limits.bytes)} and {settings.limits.pixels:,} pixels"
    held = f"all bodies together {file_size(settings.held_bytes)}"
    yield Finding("uploads", True, f"{upload} a picture; {held}; {settings.batch_lines:,} lines a batch")
    yield Finding(
        "answers", True, f"{counted(settings.most_exported, 'picture')} a ZIP, {settings.references} references"
    )


def _decoding(settings: Settings) -> Finding:
    memory = f"{file_size(ORDINARY_MEMORY)} in a worker process, or alone with {file_size(settings.limits.memory)}"
    holds = "held by the system" if MEMORY_LIMIT_HOLDS else "watched, because this system does not hold it"
    return Finding("decoding", True, f"{memory}; the limit is {holds}")
