"""Every setting that tapr reads from the environment, one row each. docs/settings.md is made from this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    name: str
    values: str
    default: str
    meaning: str
    page: str  # of docs/, where more is said


VARIABLES = (
    Variable(
        "TAPR_HOME", "a folder", "the user's cache folder", "where fetched weights and other caches are kept", "models"
    ),
    Variable("TAPR_OFFLINE", "1", "not set", "forbids fetching weights", "models"),
    Variable(
        "TAPR_ARITHMETIC",
        "int8-rows, float16",
        "the choice of the encoder",
        "in which numbers clip-b16 looks at pictures",
        "models",
    ),
    Variable(
        "TAPR_THREADS", "a whole number", "all processors", "threads for matching, encoding and decoding", "matching"
    ),
    Variable(
        "TAPR_KERNEL",
        "numpy, cpu, cpu-avx2 and so on, cuda, torch",
        "the fastest that runs here",
        "which kernel scores the pictures",
        "matching",
    ),
    Variable("TAPR_TOKEN", "a secret", "none", "the token that every client of `tapr serve` must send", "security"),
    Variable("TAPR_WRITE_TOKEN", "a secret", "none", "the token that lets a client put and delete pictures", "client"),
    Variable("TAPR_TOKEN_<GALLERY>", "a secret", "TAPR_TOKEN", "the same for one of several galleries", "client"),
    Variable(
        "TAPR_WRITE_TOKEN_<GALLERY>", "a secret", "TAPR_WRITE_TOKEN", "the same for one of several galleries", "client"
    ),
    Variable("TAPR_WEBHOOK_SECRET", "a secret", "none", "signs what `tapr serve` posts to webhooks", "api"),
    Variable(
        "TAPR_LISTEN_FD", "a number", "not set", "set by `tapr serve` itself for the process that serves", "scaling"
    ),
    Variable(
        "TAPR_READY_FD", "a number", "not set", "set by `tapr serve` itself for the process that serves", "scaling"
    ),
)
LANGUAGE_MODEL = "TAPR_LLM_"  # one variable per field of factorize.settings.LLMSettings
