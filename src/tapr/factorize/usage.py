"""What language model calls use up: requests, tokens, money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenUsage:
    """Counts as the server reports them; a server that reports no tokens counts 0."""

    calls: int = 0  # requests sent, refused and repeated ones too
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
        )

    def cost(self, price_in: float | None, price_out: float | None) -> float | None:
        """Return the cost in the prices' currency; prices are for a million tokens; None while no price is known."""
        if price_in is None and price_out is None:
            return None
        return (self.tokens_in * (price_in or 0) + self.tokens_out * (price_out or 0)) / 1_000_000

    def as_dict(self) -> dict[str, int]:
        return {"calls": self.calls, "tokens_in": self.tokens_in, "tokens_out": self.tokens_out}

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> TokenUsage:
        """Read back from a Factorization's details; nothing when they say nothing."""
        used = details.get("usage")
        return cls(**used) if isinstance(used, dict) else NOTHING_USED


NOTHING_USED = TokenUsage()
