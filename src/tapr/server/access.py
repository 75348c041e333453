"""Access rights: the read and write tokens of each gallery."""

from __future__ import annotations

import hashlib
import hmac
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.utils.amounts import counted

GALLERY = "tapr.gallery"  # key in the request scope: the name of the gallery that handles it
BATCH = "/images:batch"  # how the path of a batch of writes ends
_NAMED = "/api/galleries/"
_MIN_TOKEN_CHARACTERS = 8


class Right(IntEnum):
    """Each right includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Tokens:
    """The tokens of one gallery. Write tokens may also read."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind, tokens in (("token", self.read), ("write token", self.write)):
            for token in tokens:
                if len(token) < _MIN_TOKEN_CHARACTERS:
                    what = f"the {kind} is too short, with {counted(len(token), 'character')}"
                    raise BadInput(f"{what}: give it {_MIN_TOKEN_CHARACTERS} or more")
                if not token.isascii() or not token.isprintable():
                    raise BadInput(f"the {kind} has a character that a header cannot hold: use printable ASCII")


@dataclass(frozen=True)
class Access:
    """Decides what a client may do. `allow_write`: everyone who may read may also write."""

    galleries: Mapping[str, Tokens]  # by name; the first one serves the routes without a gallery name
    allow_write: bool = False

    @property
    def first(self) -> str:
        return next(iter(self.galleries))

    def writes_at_all(self, name: str) -> bool:
        return self.allow_write or bool(self.galleries[name].write)

    def is_open(self, name: str) -> bool:
        """Return whether it can be read without a token."""
        return not self.galleries[name].read and name not in self.closed_by_write_tokens()

    def closed_by_write_tokens(self) -> list[str]:
        """Return the galleries that would be open to everyone if they had no write token."""
        if self.allow_write:
            return []
        return [name for name, tokens in self.galleries.items() if tokens.write and not tokens.read]

    def by_token(self, name: str, given: str) -> Right:
        """Return the right that a token gives. All are compared in constant time, so that timing reveals nothing."""
        tokens = self.galleries[name]
        write, read = _among(given, tokens.write), _among(given, tokens.read)
        if write or (read and self.allow_write):
            return Right.WRITE
        return Right.READ if read else self.by_nothing(name)

    def by_cookie(self, name: str, given: str) -> Right:
        """Return the right that a browser's cookie gives: reading only, unless everyone may write."""
        tokens = self.galleries[name]
        known = _among(given, [cookie_of(token) for token in (*tokens.read, *tokens.write)])
        if not known:
            return self.by_nothing(name)
        return Right.WRITE if self.allow_write else Right.READ

    def by_nothing(self, name: str) -> Right:
        if not self.is_open(name):
            return Right.NONE
        return Right.WRITE if self.allow_write else Right.READ

    def knows(self, given: str) -> bool:
        """Return whether it is a token of any gallery."""
        return _among(given, [token for tokens in self.galleries.values() for token in (*tokens.read, *tokens.write)])

    def cookie_for(self, given: str) -> str | None:
        """Return the cookie for a browser that sends a valid token of any gallery."""
        return cookie_of(given) if self.knows(given) else None


def gallery_named(path: str) -> str | None:
    """Return `shop` for /api/galleries/shop/search."""
    return path.removeprefix(_NAMED).partition("/")[0] if path.startswith(_NAMED) else None


def is_write(method: str, path: str) -> bool:
    return path.startswith("/api/") and (method in ("PUT", "DELETE", "PATCH") or path.endswith(BATCH))


def cookie_of(token: str) -> str:
    """Hash the token, so that stolen cookies do not reveal it."""
    return hmac.new(token.encode(), b"tapr cookie", hashlib.sha256).hexdigest()


def read_tokens(path: str | Path, names: Iterable[str]) -> dict[str, Tokens]:
    """Read tokens from a TOML file: one table per gallery, with `read` and `write`, each a token or a list."""
    try:
        value = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read the tokens in {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    known = list(names)
    for name, table in value.items():
        if name not in known:
            raise BadInput(f"{path} has tokens for {name!r}, and the galleries served are {', '.join(known)}")
        if not isinstance(table, dict) or not set(table) <= {"read", "write"}:
            raise BadInput(f'{path}: write tokens as [{name}], then read = "TOKEN" and write = "TOKEN"')
    return {
        name: _named(f"{path}, [{name}]", *(_texts(table.get(kind, ()), path) for kind in ("read", "write")))
        for name, table in value.items()
    }


def tokens_of_environment(names: Iterable[str]) -> dict[str, Tokens]:
    """Read TAPR_TOKEN_SHOP and TAPR_WRITE_TOKEN_SHOP for the gallery shop."""
    tokens = {}
    for name in names:
        suffix = name.upper().replace("-", "_")
        read, write = os.environ.get(f"TAPR_TOKEN_{suffix}"), os.environ.get(f"TAPR_WRITE_TOKEN_{suffix}")
        if read or write:
            place = f"TAPR_TOKEN_{suffix} or TAPR_WRITE_TOKEN_{suffix}"
            tokens[name] = _named(place, (read,) if read else (), (write,) if write else ())
    return tokens


def _named(place: str, read: tuple[str, ...], write: tuple[str, ...]) -> Tokens:
    """Make tokens; a refusal says where the token stands."""
    try:
        return Tokens(read, write)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _texts(value: Any, path: str | Path) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{path}: a token is a text, or a list of texts")
    return texts


def _among(given: str, tokens: Iterable[str]) -> bool:
    return sum(hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()) for token in tokens) > 0
