"""Write the pages that are made from the code: docs/reference/cli.md, docs/reference/errors.md and docs/settings.md.

python tools/reference.py            # write them
python tools/reference.py --check    # exit 1 where one is out of date
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tapr.cli.main import app
from tapr.errors import CODES
from tapr.factorize.settings import LLMSettings
from tapr.utils.environment import LANGUAGE_MODEL, VARIABLES

DOCS = Path(__file__).parents[1] / "docs"
MADE = "Made from the code by `tools/reference.py`. Do not edit it.\n"


def settings_page() -> str:
    rows = ["| variable | values | default | what it decides |", "|---|---|---|---|"]
    rows += [
        f"| `{one.name}` | {one.values} | {one.default} | {one.meaning}: [{one.page}]({one.page}.md) |"
        for one in VARIABLES
    ]
    model = ["| variable | default |", "|---|---|"]
    for name, field in LLMSettings.model_fields.items():
        default = (
            "must be set" if field.is_required() else "not set" if not _shown(field.default) else _shown(field.default)
        )
        model.append(f"| `{LANGUAGE_MODEL}{name.upper()}` | {default} |")
    return (
        "# Settings\n\nEvery environment variable that tapr reads. An option of a command goes before its variable.\n"
        f"{MADE}\n"
        + "\n".join(rows)
        + "\n\n## The language model of the `openai` factorizer\n\n[Factorizers](factorizers.md) says what each means. "
        + "`OPENAI_API_KEY` is used where no key of its own is set.\n\n"
        + "\n".join(model)
        + "\n"
    )


def _shown(value: object) -> str:
    text = "" if value is None else str(value)
    return "" if set(text) <= {"*"} else f"`{text}`"


def cli_page() -> str:
    parts = [
        "# Command line reference\n",
        "Every command has `--help`, and every one that answers has `--json`. Progress goes to stderr.",
        "The exit code is 0 when all went well, 2 when the command was used wrongly, and 1 when something failed.",
        MADE,
    ]
    for name, shared in _commands(app, "tapr"):
        command = copy.copy(shared)
        command._help_option = None  # else click shows the one of an earlier call in this process
        context = click.Context(
            command, info_name=name, max_content_width=118, terminal_width=118, help_option_names=["-h", "--help"]
        )
        parts += [f"## {name}\n", "```text", command.get_help(context), "```\n"]
    return "\n".join(parts)


def _commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=prefix)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")


def errors_page() -> str:
    rows = [f"| `{code}` | {meaning} |" for code, meaning in sorted(CODES.items())]
    return (
        "# Error codes\n\nEvery error has one of these codes. Sentences may change between versions, codes do not.\n\n"
        "- Python: `error.code` of a `tapr.errors.TaprError`.\n"
        "- HTTP and client: `code` in the problem JSON, and `error.code` of the client's error.\n\n"
        f"{MADE}\n| code | what it means |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


PAGES = {"settings.md": settings_page, "reference/cli.md": cli_page, "reference/errors.md": errors_page}


def main() -> int:
    stale = [name for name, make in PAGES.items() if _read(DOCS / name) != make()]
    if "--check" in sys.argv[1:]:
        print(f"out of date: {', '.join(stale)}" if stale else "all pages are up to date")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
