"""How a server runs: where it listens, who may ask, and how much it takes on."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tapr.errors import BadInput
from tapr.images.decode import Limits
from tapr.server.access import Access, Tokens
from tapr.server.fetching import Allowed
from tapr.server.rate import parse_rate

DEFAULT_PORT = 8765
UPLOAD_LIMITS = Limits(bytes=20 * 2**20, memory=512 * 2**20)  # pixels as everywhere


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT  # 0 takes any free one
    token: str | None = None  # asked of everyone who asks for more than /healthz
    names: tuple[str, ...] = ()  # further host names that the server answers to
    origins: tuple[str, ...] = ()  # other sites whose pages may ask, such as https://shop.example
    show_in_folder: bool = False  # POST /api/show opens the file manager of this machine
    show_paths: bool = False  # ids that are paths of files, and filters on `path`, from which one can guess them

    limits: Limits = UPLOAD_LIMITS  # of one uploaded picture
    most_explained: int = 1000  # hits of one reply that come with their parts
    most_exported: int = 500  # pictures of one ZIP
    threads: int = 16  # requests worked on at a time; those that reach matching together share one sweep
    queue: int = 64  # requests worked on or waiting; the next one is answered 429
    seconds: float = 60.0  # for one answer, and for one upload to arrive
    references: int = 128  # opened references that are kept
    connections: int = 500  # open at a time
    idle_seconds: float = (
        15.0  # a connection may be silent, or take for one request's head, or take nothing of its answer
    )

    write_token: str | None = None  # opens every gallery that has no tokens of its own, for writing
    tokens: Mapping[str, Tokens] = field(default_factory=dict)  # by gallery: its own
    allow_write: bool = False  # who may read may write
    rate: str | None = None  # requests of one asker, such as 5/s
    fetch: tuple[str, ...] = ()  # hosts, networks and places that pictures may be fetched from
    batch_bytes: int = 1 << 30  # of one batch of writes
    write_wait: float = 20.0  # seconds that a write waits for another writer, such as an index run; then 503

    def __post_init__(self) -> None:
        Tokens(_some(self.token), _some(self.write_token))
        if not is_loopback(self.host) and self.token is None and not self.tokens:
            raise _reached_by_others(self.host)
        if self.show_in_folder and (self.token or self.write_token or self.tokens or not is_loopback(self.host)):
            raise BadInput(
                "--show-in-folder is for the person at this machine: use it with --host 127.0.0.1 and without a token"
            )
        if self.rate is not None:
            parse_rate(self.rate)
        Allowed.of(self.fetch)
        if not 0 <= self.port <= 65535:
            raise BadInput(f"the port must be from 0 to 65535, not {self.port}")
        for origin in self.origins:
            parts = urlsplit(origin)
            if (
                parts.scheme not in ("http", "https")
                or not parts.netloc
                or origin != f"{parts.scheme}://{parts.netloc}"
            ):
                raise BadInput(f"an origin is written like https://shop.example, without a path, not {origin!r}")
        for name in (
            "threads",
            "queue",
            "seconds",
            "references",
            "most_explained",
            "most_exported",
            "connections",
            "idle_seconds",
        ):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} must be above 0, not {getattr(self, name)!r}")

    def access(self, galleries: Iterable[str]) -> Access:
        """Who may do what in the galleries of these names; each needs a token where others can reach the server."""
        own = Tokens(_some(self.token), _some(self.write_token))
        tokens = {name: self.tokens.get(name, own) for name in galleries}
        if not is_loopback(self.host) and not all(one.read or one.write for one in tokens.values()):
            raise _reached_by_others(self.host)
        return Access(tokens, self.allow_write)


def _some(token: str | None) -> tuple[str, ...]:
    return () if token is None else (token,)


def _reached_by_others(host: str) -> BadInput:
    return BadInput(f"{host} can be reached by others: give a secret with --token or TAPR_TOKEN, or use 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
