"""Protects the server: host names, origins, tokens, rate limits, body sizes, and security headers for browsers."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapr.errors import BadInput
from tapr.server import token_page
from tapr.server.access import BATCH, Access, Right, gallery_named, is_write
from tapr.server.incoming import max_batch_bytes_held
from tapr.server.problems import problem
from tapr.server.rate import RateLimit, parse_rate
from tapr.server.settings import Settings, is_loopback
from tapr.utils.amounts import file_size

COOKIE = "tapr_token"
OPEN_TO_ALL = ("/healthz", "/readyz", *token_page.PARTS)
JSON_BYTES = 256 * 2**10
_WITH_PICTURE = ("/search", "/factorize", "/references", "/rank")  # what may come in their JSON
_CLOSE = {"Connection": "close"}
_MULTIPART_EXTRA = 64 * 2**10  # room for field names, boundaries, the edit and the spec

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Checks host name, origin and token before anything else is read, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, settings: Settings, access: Access) -> None:
        self._app, self._access, self._origins = app, access, settings.origins
        self._rate = None if settings.rate is None else RateLimit(*parse_rate(settings.rate))
        # DNS rebinding: a page elsewhere can point its own name to 127.0.0.1, but the browser then sends that name as
        # Host.
        known = {settings.host, "localhost", "127.0.0.1", "::1", *settings.names}
        self._names = known if is_loopback(settings.host) or settings.names else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        request_headers = Headers(scope=scope)
        origin = request_headers.get("origin")
        cross = {"Cross-Origin-Resource-Policy": "cross-origin"} if origin in self._origins else {}
        if "transfer-encoding" in request_headers and "content-length" in request_headers:
            cross["Connection"] = "close"  # RFC 9112, 6.1: another server may see the end of this request elsewhere

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (_HEADERS | cross).items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._names is not None and _name(host) not in self._names:
            return problem(421, "this server does not answer to that host name: use 127.0.0.1, or start it with --name")
        origin = headers.get("origin")
        named = origin is not None and origin in self._origins
        if not named and _is_cross_site(headers, scope["path"]):
            return problem(403, "requests from other sites' pages are refused")
        if scope["path"] in OPEN_TO_ALL:
            return None
        rights, asker = self._rights(scope, headers, cookies=not named)
        scope["tapr.rights"] = rights
        refusal = self._too_often(scope, asker) or self._token_refusal(scope, headers, rights, cookies=not named)
        given = _bearer(headers)
        if refusal is not None and refusal.status_code in (401, 403) and given and not self._access.knows(given):
            return problem(401, str(_UNKNOWN), {"WWW-Authenticate": 'Bearer error="invalid_token"'}, _UNKNOWN)
        return refusal

    def _rights(self, scope: Scope, headers: Headers, cookies: bool) -> tuple[dict[str, Right], str]:
        """The client's right in each gallery, and its identity: a valid token, or else its address."""
        access = self._access
        given = _bearer(headers)
        cookie = _cookie(headers.get("cookie", "")) if cookies else ""
        address = (scope.get("client") or ("", 0))[0]
        nothing = {name: access.by_nothing(name) for name in access.galleries}
        if given is not None:
            rights = {name: access.by_token(name, given) for name in access.galleries}
        elif cookie:
            rights = {name: access.by_cookie(name, cookie) for name in access.galleries}
        else:
            rights = nothing
        known = (given or cookie) if rights != nothing else ""
        return rights, hashlib.sha256(known.encode("utf-8", "replace")).hexdigest() if known else address

    def _too_often(self, scope: Scope, asker: str) -> Response | None:
        """Apply the rate limit. Pictures do not count, since a page of results loads dozens."""
        if self._rate is None or not scope["path"].startswith("/api/") or _is_picture(scope):
            return None
        wait = self._rate.wait(asker)
        if not wait:
            return None
        sentence = "rate limit exceeded: ask again after Retry-After seconds"
        return problem(429, sentence, {"Retry-After": str(math.ceil(wait))})

    def _token_refusal(
        self, scope: Scope, headers: Headers, rights: dict[str, Right], cookies: bool
    ) -> Response | None:
        access, path = self._access, scope["path"]
        if cookies and path == "/" and scope["method"] == "GET":
            query = parse_qs(scope["query_string"].decode("latin-1"))
            value = access.cookie_for(query.get("token", [""])[0])
            chosen = query.get("gallery", [None])[0]
            if value is not None:  # redirect, so that the token disappears from the address bar and the history
                response = RedirectResponse(_page_of(chosen), 303)
                # lax: shared links to a search still work; the API is protected from other sites by the origin check
                response.set_cookie(COOKIE, value, httponly=True, samesite="lax", secure=scope["scheme"] == "https")
                return response
            if chosen is None and rights[access.first] == Right.NONE and any(rights.values()):
                # plain routes belong to the first gallery: redirect to the first one that this visitor may read
                return RedirectResponse(_page_of(next(name for name, right in rights.items() if right)), 303)
        named = gallery_named(path)
        if named in rights:
            right = rights[named]
        elif path.startswith("/api/") and named is None and path != "/api/galleries":
            named = access.first
            right = rights[named]
        else:  # page files, the list of galleries, unknown galleries: allowed for everyone who may read anything
            right = max(rights.values())
        if right == Right.NONE:
            return _stranger(scope, headers, known=any(rights.values()))
        if is_write(scope["method"], path) and right < Right.WRITE:
            if named is None or named not in rights or not access.writes_at_all(named):
                return problem(403, "writing is off: start the server with a write token, or with --allow-write")
            return problem(403, "this needs a write token: send it as Authorization: Bearer TOKEN")
        return None


_UNKNOWN = BadInput(
    "this token is unknown here: check it with whoever started the server, or leave it out where none is needed",
    code="unknown_token",
)


def _bearer(headers: Headers) -> str | None:
    """The token that was sent; None: none was."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _page_of(gallery: str | None) -> str:
    return "/" if gallery is None else f"/?{urlencode({'gallery': gallery})}"


def _stranger(scope: Scope, headers: Headers, known: bool) -> Response:
    """The response for a client without read access. `known`: it may read another gallery."""
    if known:
        return problem(403, "this token does not open that gallery: use one of its own")
    if token_page.wanted(scope, headers):
        return token_page.page(wrong=b"token=" in scope["query_string"])
    sentence = "a token is needed: send Authorization: Bearer TOKEN, or open /?token=TOKEN in a browser"
    return problem(401, sentence, {"WWW-Authenticate": "Bearer"})


def _is_cross_site(headers: Headers, path: str) -> bool:
    if headers.get("sec-fetch-site") == "cross-site" and path.startswith("/api/"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host", "")


class BodyLimit:
    """Refuses bodies that are too large or too slow while they arrive, and more than all requests together may hold."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._memory = _Memory(settings.held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        most = self._most(scope, headers)
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > most:
            await _too_large(most)(scope, receive, send)
            return
        is_batch = scope["path"].endswith(BATCH)
        most_held = min(most, max_batch_bytes_held(self._settings.limits)) if is_batch else most
        body = _Body(receive, self._settings.seconds, most, most_held, self._memory)
        started = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal started
            if body.refusal is None:  # the application's own error about the truncated body is replaced
                started = True
                await send(message)

        try:
            await self._app(scope, body.receive, send_unless_refused)
        except Exception:
            if body.refusal is None:
                raise
        finally:
            self._memory.held -= body.held
        if body.refusal is not None and not started:
            await body.refusal(scope, receive, send)

    def _most(self, scope: Scope, headers: Headers) -> int:
        kind = headers.get("content-type", "")
        if kind.startswith("multipart/"):
            return self._settings.limits.bytes + _MULTIPART_EXTRA
        if scope["path"].endswith(_WITH_PICTURE) or (scope["method"] == "PUT" and kind.startswith("application/json")):
            return self._settings.limits.bytes * 4 // 3 + JSON_BYTES  # base64 takes 4 characters for 3 bytes
        if scope["path"].endswith(BATCH):
            return self._settings.batch_bytes
        if scope["method"] == "PUT" and kind.startswith(("image/", "application/octet-stream")):
            return self._settings.limits.bytes
        return JSON_BYTES


@dataclass
class _Memory:
    """What the bodies of all requests without an answer hold."""

    allowed: int
    held: int = 0


class _Body:
    """A body that arrives."""

    def __init__(self, receive: Receive, seconds: float, most: int, most_held: int, memory: _Memory) -> None:
        self.refusal: Response | None = None
        self.held = 0  # bytes in memory
        self._receive, self._seconds = receive, seconds
        self._most, self._most_held, self._memory = most, most_held, memory
        self._arrived, self._is_whole = 0, False

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        begin = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.001, self._seconds))
        except TimeoutError:
            raise self._refused(problem(408, "the request did not arrive in time")) from None
        # the time in which the server works on a batch does not count as the sender's
        self._seconds -= time.monotonic() - begin
        self._arrived += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._arrived > self._most:
            raise self._refused(_too_large(self._most))
        more = min(self._arrived, self._most_held) - self.held
        if self._memory.held + more > max(self._memory.allowed, self._most_held):
            raise self._refused(problem(429, "requests hold all memory that they may: ask again in a moment", _CLOSE))
        self.held += more
        self._memory.held += more
        return message

    def _refused(self, response: Response) -> Exception:
        self.refusal = response
        return _Refused()


class _Refused(Exception):
    pass


def _too_large(most: int) -> Response:
    return problem(413, f"the request is larger than the {file_size(most)} allowed", _CLOSE)


def _name(host: str) -> str:
    """`localhost:8765` -> localhost, `[::1]:8765` -> ::1"""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _is_picture(scope: Scope) -> bool:
    return scope["method"] == "GET" and ("/images" in scope["path"] or "/references/" in scope["path"])
