"""How a factorizer fails: one query that got no spec, or a server that no query will get one from."""

from __future__ import annotations

from tapr.errors import BadInput, TaprError
from tapr.factorize.usage import NOTHING_USED, Usage


class NoSpec(TaprError):
    """This query got no spec; the next one may. Says what was used up on the way."""

    code = "factorizer_unavailable"

    def __init__(self, reason: str, usage: Usage = NOTHING_USED, code: str | None = None) -> None:
        super().__init__(reason, code=code)
        self.usage = usage


class ServerUnreachable(NoSpec):
    """Nobody answers at the address: a batch stops here, and resumes later."""


class ServerRefused(BadInput):
    """The settings are wrong (key, model, address, picture), so every query would fail alike."""

    code = "factorizer_unavailable"
