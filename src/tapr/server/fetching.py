"""Pictures fetched for those who name an address instead of sending bytes: only from where the server was told it may.

A host's name is resolved once. All its addresses must be public, or lie in a network that was allowed by number; the
connection goes to an address that was checked, so a name that changes in between changes nothing. Redirects lead to the
same host only, and are checked anew. Bytes and time are bounded.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from tapr.errors import BadInput
from tapr.images.decode import Limits, PictureTooLarge
from tapr.utils.amounts import file_size
from tapr.utils.rooted import OutsideFolder, Root

_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_CHUNK = 64 * 2**10
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NotFetched(BadInput):
    """A URL that may not be fetched, or is not a picture."""

    code = "not_fetched"


@dataclass(frozen=True)
class Allowed:
    """The locations allowed by `--fetch`: hosts (cdn.example, cdn.example:8443), networks (10.1.0.0/16), places
    (s3://bucket/x/).
    """

    hosts: frozenset[tuple[str, int | None]] = frozenset()  # without a port: the scheme's default
    networks: tuple[Network, ...] = ()
    places: tuple[str, ...] = ()  # each ends with /

    @classmethod
    def of(cls, texts: Sequence[str]) -> Allowed:
        hosts: set[tuple[str, int | None]] = set()
        networks: list[Network] = []
        places: list[str] = []
        for text in texts:
            if "://" in text or text.startswith("/"):
                places.append(_checked_place(text).rstrip("/") + "/")
            elif (network := _network(text)) is not None:
                networks.append(network)
            else:
                parts = urlsplit(f"//{text}")
                if not parts.hostname or parts.path or parts.username is not None:
                    raise BadInput(f"--fetch takes a host, a network or a folder such as s3://bucket/, not {text!r}")
                hosts.add((parts.hostname, parts.port))
        return cls(frozenset(hosts), tuple(networks), tuple(places))

    def covers(self, address: Address) -> bool:
        """Whether the IP address is in an allowed network."""
        return any(address.version == network.version and address in network for network in self.networks)


@dataclass(frozen=True)
class Fetcher:
    allowed: Allowed
    limits: Limits
    seconds: float = 20.0  # per picture, including redirects
    option: str = "--fetch"  # of tapr serve, which allowed the places
    doing: str = "fetch from"

    def fetch(self, url: str) -> bytes:
        until = time.monotonic() + self.seconds
        parts = self._checked(url)
        first = parts.hostname
        for _ in range(_REDIRECTS + 1):
            found = self._get(parts, until)
            if isinstance(found, bytes):
                return found
            parts = self._checked(urljoin(parts.geturl(), found))
            if parts.hostname != first:
                raise NotFetched(f"{first} sends the picture's address on to another host, which is not followed")
        raise NotFetched(f"{first} sends the picture's address on more than {_REDIRECTS} times")

    def check(self, url: str) -> None:
        """Refuse an address that this server may not connect to."""
        self._checked(url)

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
        """-> the status and the Retry-After header of the answer. Redirects are not followed."""
        until = time.monotonic() + self.seconds
        parts = self._checked(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            with self._connection(parts.scheme, host, port, until) as connection:
                connection.request("POST", target, body, {"User-Agent": "tapr", "Host": parts.netloc, **headers})
                reply = connection.getresponse()
                return reply.status, reply.getheader("Retry-After")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotFetched(f"{host} cannot be reached ({type(error).__name__})") from None

    def read(self, path: str) -> bytes:
        """Read from an fsspec URL such as s3://bucket/key, or from a folder of the server, within an allowed place."""
        place = _checked_place(path)
        folders = [folder for folder in self.allowed.places if place.startswith(folder) and len(place) > len(folder)]
        if not folders:
            raise NotFetched("this server may not read from that place: start it with --fetch and its folder")
        if "://" not in place:
            return self._read_file(place, folders[0])
        try:
            import fsspec
        except ModuleNotFoundError:
            raise NotFetched("the server needs fsspec to read from such places: pip install fsspec") from None
        try:
            with fsspec.open(place, "rb") as file:
                data = file.read(self.limits.bytes + 1)
        # any error of the storage package; its message may hold secrets, so it is not passed on
        except Exception as error:
            raise NotFetched(f"{place[:200]!r} cannot be read ({type(error).__name__}): check the path") from None
        return self._not_too_large(data)

    def _read_file(self, path: str, folder: str) -> bytes:
        try:
            with Root(folder).open(path.removeprefix(folder)) as file:
                return self._not_too_large(file.read(self.limits.bytes + 1))
        except OutsideFolder:
            raise NotFetched("that path leads through a link, which is not followed: name the file itself") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise NotFetched(f"{path[:200]!r} cannot be read ({reason}): check the path") from None

    def _checked(self, url: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise NotFetched(f"{url[:200]!r} is no address that can be read") from None
        if parts.scheme not in _PORTS or not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
            raise NotFetched("an address is written like https://cdn.example/picture.jpg")
        if parts.username is not None or parts.password is not None:
            raise NotFetched("an address with a user name in it is not fetched")
        host = parts.hostname
        number = _address(host)
        usual = port in (None, _PORTS[parts.scheme])
        by_name = (host, port) in self.allowed.hosts or (usual and (host, None) in self.allowed.hosts)
        if not by_name and not (number is not None and self.allowed.covers(number)):
            raise NotFetched(
                f"this server may not {self.doing} {host[:200]!r}: start it with {self.option} and that host"
            )
        return parts

    def _get(self, parts: SplitResult, until: float) -> bytes | str:
        """The body, or the URL of a redirect."""
        host = parts.hostname or ""
        port = parts.port or _PORTS[parts.scheme]
        try:
            with self._connection(parts.scheme, host, port, until) as connection:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                headers = {
                    "Accept": "image/*",
                    "Accept-Encoding": "identity",
                    "User-Agent": "tapr",
                    "Host": parts.netloc,
                }
                connection.request("GET", target, headers=headers)
                reply = connection.getresponse()
                if reply.status in (301, 302, 303, 307, 308):
                    return reply.getheader("Location") or ""
                if reply.status != 200:
                    raise NotFetched(f"{host} answered {reply.status} instead of a picture")
                length = reply.getheader("Content-Length", "")
                if length.isascii() and length.isdigit() and int(length) > self.limits.bytes:
                    raise self._too_large()
                return self._body(reply, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= until:
                raise NotFetched(f"{host} did not send the picture within {self.seconds:g} seconds") from None
            raise NotFetched(f"the picture cannot be fetched from {host} ({type(error).__name__})") from None

    def _body(self, reply: http.client.HTTPResponse, until: float) -> bytes:
        pieces, size = [], 0
        while piece := reply.read1(_CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > self.limits.bytes:
                raise self._too_large()
            if time.monotonic() >= until:
                raise TimeoutError
        if time.monotonic() >= until:  # the timer closed it, which looks like the end of the body
            raise TimeoutError
        if reply.length:  # the body is incomplete
            raise http.client.IncompleteRead(b"")
        return b"".join(pieces)

    @contextmanager
    def _connection(self, scheme: str, host: str, port: int, until: float) -> Iterator[http.client.HTTPConnection]:
        """Connect to a checked address. The connection is closed when the time is up, whatever it waits for."""
        address = self._resolved(host, port)
        left = max(0.001, until - time.monotonic())
        opened = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6)
        opened.settimeout(left)

        def shut() -> None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(left + 0.01, shut)  # certainly after `until`
        timer.daemon = True
        timer.start()
        used = opened
        try:
            opened.connect((str(address), port))
            if scheme == "https":
                used = ssl.create_default_context().wrap_socket(opened, server_hostname=host)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = used
            yield connection
        finally:
            timer.cancel()
            used.close()
            opened.close()

    def _resolved(self, host: str, port: int) -> Address:
        """The first IP address of a host. All of its addresses must be allowed or public."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        for address in addresses:
            if not is_public(address) and not self.allowed.covers(_inner(address)):
                raise NotFetched(
                    f"{host} is at an address that is not public: allow it by number with {self.option}, "
                    "such as 10.1.0.0/16"
                )
        return addresses[0]

    def _not_too_large(self, data: bytes) -> bytes:
        if len(data) > self.limits.bytes:
            raise self._too_large()
        return data

    def _too_large(self) -> PictureTooLarge:
        return PictureTooLarge(f"the file is larger than the {file_size(self.limits.bytes)} allowed")


def is_public(address: Address) -> bool:
    """Whether it is a public internet address. An address that embeds another one counts as that one."""
    inner = _inner(address)
    return inner.is_global and not inner.is_multicast and not inner.is_reserved


def _inner(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address.teredo is not None:
            return address.teredo[1]
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _address(host: str) -> Address | None:
    try:
        return _inner(ipaddress.ip_address(host))
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _checked_place(path: str) -> str:
    scheme, _, rest = path.rpartition("://")
    if not path.isprintable() or "\\" in path or "::" in path or "://" in scheme or ".." in rest.split("/"):
        raise NotFetched("a path is written like s3://bucket/folder/picture.jpg, without .. and without ::")
    if scheme.lower() in ("http", "https"):
        raise NotFetched("an http address is given as url, not as path")
    if not scheme and not path.startswith("/"):
        raise NotFetched("a path is written like s3://bucket/folder/picture.jpg, or begins with /")
    return path
