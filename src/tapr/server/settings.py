"""Server settings: address, access and limits."""

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
from tapr.store.quota import Quota

DEFAULT_PORT = 8765
UPLOAD_LIMITS = Limits(bytes=20 * 2**20, memory=512 * 2**20)  # pixels as everywhere


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT  # 0: any free port
    token: str | None = None  # required for everything except /healthz
    names: tuple[str, ...] = ()  # additional accepted host names
    origins: tuple[str, ...] = ()  # other sites whose pages may use the API, such as https://shop.example
    proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-For and -Proto are believed
    show_in_folder: bool = False  # POST /api/show opens the file manager of this machine
    show_paths: bool = False  # allow filters on `path`
    show_location: bool = False  # tell latitude and longitude of pictures, and allow filters on them

    strip_location: bool = False  # send originals without the place where they were taken
    limits: Limits = UPLOAD_LIMITS  # per uploaded picture
    most_explained: int = 1000  # most hits with contributions per response
    most_exported: int = 500  # most pictures per ZIP
    threads: int = 16  # requests processed at a time; those that match at the same time share a sweep
    queue: int = 64  # running and waiting requests; further ones are answered 429
    seconds: float = 60.0  # time limit per response and per upload
    references: int = 128  # cached references
    connections: int = 500  # open connections; fewer where the system allows few open files
    idle_seconds: float = 15.0  # how long a connection may be silent, send one request head, or not read its response

    write_token: str | None = None  # write access to galleries without tokens of their own
    tokens: Mapping[str, Tokens] = field(default_factory=dict)  # per gallery
    allow_write: bool = False  # everyone who may read may also write
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # per gallery; "" for all that have none of their own
    rate: str | None = None  # requests per client, such as 5/s
    fetch: tuple[str, ...] = ()  # allowed sources of pictures given by URL or path
    webhook: tuple[str, ...] = ()  # where new matches of saved searches may be posted to
    webhook_secret: str | None = None  # signs what is posted
    check_seconds: float = 5.0  # how often saved searches are compared with a gallery that may have changed
    batch_bytes: int = 1 << 30  # of one batch of writes
    batch_lines: int = 50_000  # of one batch that are done
    held_bytes: int = 256 * 2**20  # of all requests together, from their first byte to their answer
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
        if Allowed.of(self.webhook).places:
            raise BadInput("--webhook takes a host or a network, such as hooks.example, not a folder")
        if not 0 <= self.port <= 65535:
            raise BadInput(f"the port must be from 0 to 65535, not {self.port}")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise BadInput(f"a proxy is named by address or network, such as 10.1.0.7, not {proxy!r}") from None
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
            "check_seconds",
            "batch_lines",
            "held_bytes",
        ):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} must be above 0, not {getattr(self, name)!r}")

    def quota(self, name: str) -> Quota | None:
        return self.quotas.get(name, self.quotas.get(""))

    def access(self, galleries: Iterable[str]) -> Access:
        """The access rights for these galleries. Each needs a token if others can reach the server."""
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
    """Whether the address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
