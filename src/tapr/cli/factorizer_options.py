"""The options that choose a factorizer, the same for every command that needs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tapr.cli.terminal import NameOf, was_given
from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.factorize.registry import DEFAULT_FACTORIZER, FACTORIZERS, load_factorizer, needs_encoder

if TYPE_CHECKING:
    from tapr.factorize.settings import LLMSettings

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--factorizer",
        type=NameOf(FACTORIZERS),
        default=DEFAULT_FACTORIZER,
        show_default=True,
        help="What turns picture and edit into Target, Add, Preserve and Remove.",
    ),
    click.option(
        "--records",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A record file: `records` reads its specs from it, other factorizers keep theirs in it.",
    ),
    click.option("--llm-url", metavar="URL", help="OpenAI-compatible server, for openai.  [env: TAPR_LLM_BASE_URL]"),
    click.option("--llm-model", metavar="NAME", help="Its model.  [env: TAPR_LLM_MODEL; key: TAPR_LLM_API_KEY]"),
    click.option(
        "--on-failure",
        type=click.Choice(("error", "target-only")),
        default="error",
        show_default=True,
        help="When the language model gives no valid spec: stop, or search with the edit itself (flagged).",
    ),
)


@dataclass(frozen=True)
class FactorizerOptions:
    """The chosen factorizer options. A command loads the factorizer once its encoder is loaded."""

    factorizer: str
    records: Path | None
    llm_url: str | None
    llm_model: str | None
    on_failure: Literal["error", "target-only"]

    @property
    def needs_encoder(self) -> bool:
        return needs_encoder(self.factorizer)

    def settings(self) -> LLMSettings | None:
        """The language model's settings; None for a factorizer that has none."""
        overrides = {"base_url": self.llm_url, "model": self.llm_model}
        if FACTORIZERS[self.factorizer].asks_server:
            from tapr.factorize.settings import LLMSettings

            return LLMSettings.load(overrides)
        if any(overrides.values()):
            what = f"--llm-url and --llm-model go with --factorizer openai, not with {self.factorizer}"
            raise BadInput(what, code="conflicting_options")
        return None

    def load(self, encoder: Encoder | None = None) -> Factorizer:
        return load_factorizer(
            self.factorizer,
            encoder=encoder,
            records=self.records,
            settings=self.settings(),
            on_failure=self.on_failure,
        )


def factorizer_was_given() -> bool:
    """Whether the running command was given one of these options."""
    return any(was_given(field.name) for field in fields(FactorizerOptions))


def factorizer_options(command: Command) -> Command:
    """Adds the options; the command takes them as `**options` and makes FactorizerOptions(**options)."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
