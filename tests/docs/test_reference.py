"""The pages that are made from the code are up to date, and every option and setting is documented."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tapr.cli.main import app
from tapr.errors import CODES
from tapr.utils.environment import LANGUAGE_MODEL, VARIABLES
from tools import reference

SOURCE = Path(reference.__file__).parents[1] / "src" / "tapr"
COMMANDS = dict(reference._commands(app, "tapr"))


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_is_up_to_date(page: str) -> None:
    text = (reference.DOCS / page).read_text(encoding="utf-8")
    assert text == reference.PAGES[page](), "run: python tools/reference.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option)]
    assert not [one.opts[0] for one in options if not one.help and not one.hidden]


def test_every_variable_of_the_environment_is_in_the_table() -> None:
    known = {one.name for one in VARIABLES}
    read = {
        found
        for path in SOURCE.rglob("*.py")
        for found in re.findall(r"\bTAPR_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    }
    unknown = {name for name in read if not name.startswith(LANGUAGE_MODEL) and f"{name}_" != LANGUAGE_MODEL} - known
    assert not {name for name in unknown if not re.match(r"TAPR_(WRITE_)?TOKEN_", name)}


def test_every_code_that_is_raised_is_in_the_table_and_every_code_of_the_table_is_raised() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    raised = set(re.findall(r'\bcode(?:: str(?: \| None)?)? ?= ?"([a-z_]+)"', sources))
    assert raised <= CODES.keys()
    assert [code for code in CODES if sources.count(f'"{code}"') < 2] == []
