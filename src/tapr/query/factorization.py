"""Factorization: a spec, and what made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapr.query.spec import EditSpec


@dataclass(frozen=True)
class Factorization:
    """A spec and what made it; notes are sentences for the person who asked (what was not understood, ...)."""

    spec: EditSpec
    factorizer: str  # its name, with model or version: "grounded/3", "openai:qwen3.6-27b", "records", "given"
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON-ready: tags, tokens used, tries, prompt hash, ...
