"""safe_text: nothing secret and nothing that a terminal obeys is shown or kept."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.table import Table

from tapr.cli import terminal
from tapr.factorize.settings import LLMSettings
from tapr.utils.safe_text import printable, printable_json, without_secrets
from tests.cli.terminal import run
from tests.pictures import flag, png

HOSTILE = "a\x1b[2Jb\x9b31mc\x07d\u202ee\rf\ng\x00h\udc80"


def test_control_characters_are_written_out() -> None:
    assert printable(HOSTILE) == "a\\x1b[2Jb\\x9b31mc\\x07d\\u202ee\\rf\\ng\\x00h\\udc80"
    assert printable("one\ntwo", keep="\n") == "one\ntwo"
    assert printable("été 日本\u00a0語 👩\u200d🚀") == "été 日本\u00a0語 👩\u200d🚀"


def test_json_stays_the_same_value() -> None:
    value = {HOSTILE: [HOSTILE, "\U000e0001 tag", "plain"]}
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    text.encode()  # no half of a surrogate pair is left
    assert not set(text) & set("\x1b\x9b\x07\u202e\r\x00\U000e0001")


def test_the_console_prints_no_escape_sequence_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    out = terminal.output()
    out.print(HOSTILE.replace("\udc80", ""), markup=False)
    table = Table()
    table.add_column(HOSTILE[:4])
    table.add_row(terminal.plain(HOSTILE), HOSTILE[:9])
    out.print(table)
    terminal.print_json({"name": HOSTILE})
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x9b\x07\u202e\r\x00")
    assert "a\\x1b[2Jb" in printed


@pytest.mark.skipif(os.name == "nt", reason="no such file names")
def test_a_file_name_moves_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "\x1b]0;owned\x07\x1b[31mred\n.png").write_bytes(b"no picture")
    (tmp_path / "p" / "\x1b[2Jgood.png").write_bytes(png(flag("red")))
    done = run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 0
    assert "\\x1b]0;owned\\x07\\x1b[31mred\\n.png is not a picture" in done.out
    found = run("search", "-g", tmp_path / "g", "--text", "red")
    assert "\\x1b[2Jgood.png" in found.out
    failed = run("search", "-g", tmp_path / "\x1b[2Jnowhere", "--text", "red")
    assert failed.code == 2
    for printed in (done.out, done.err, found.out, found.err, failed.out, failed.err):
        assert "\x1b" not in printed


def test_secrets_are_masked_wherever_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    monkeypatch.setenv("SHORT_KEY", "abc")  # too short: it would blot out words
    LLMSettings(base_url="http://me:pass-word-1@host/v1", model="m", api_key="option-key-42")  # type: ignore[arg-type]
    said = "sk-0123456789 option-key-42 pass-word-1 abc"
    assert without_secrets(said) == "*** *** *** abc"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("https://user:pw@host/v1 answered", "https://***@host/v1 answered"),
        ("GET http://host/v1?api_key=abc&x=1", "GET http://host/v1?api_key=***&x=1"),
        ("http://host/?x=1&token=t0ken.", "http://host/?x=1&token=***"),
        ("mail me@host about https://host/path", "mail me@host about https://host/path"),
    ],
)
def test_addresses_lose_their_passwords(said: str, shown: str) -> None:
    assert without_secrets(said) == shown


def test_the_command_line_masks_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_TOKEN", "my-secret-token")
    failed = run("search", "-g", "/nowhere/my-secret-token", "--text", "red")
    assert failed.code == 2
    assert "my-secret-token" not in failed.err
    assert "***" in failed.err


def test_remarks_mask_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_TOKEN", "my-secret-token")
    stream = io.StringIO()
    monkeypatch.setattr(terminal, "remarks", terminal.SafeConsole(file=stream))
    terminal.say("fetching my-secret-token")
    assert stream.getvalue().strip() == "fetching ***"
