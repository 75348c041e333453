"""What `tapr` answers before a command runs: its help, and a hint at a command that was misspelt."""

from __future__ import annotations

import pytest

import tapr.cli.main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["tapr", *arguments])
    with pytest.raises(SystemExit) as stopped:
        tapr.cli.main.main()
    return stopped.value.code


@pytest.mark.parametrize("group", [(), ("models",), ("searches",), ("cluster",), ("eval",)])
def test_a_group_alone_prints_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], group: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *group) == 0
    output = capsys.readouterr()
    assert output.out.startswith("Usage: tapr")
    assert "Commands:\n" in output.out
    assert output.err == ""


def test_a_misspelt_command_names_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "serch", "a.jpg") == 2
    assert capsys.readouterr().err == "tapr: there is no command 'serch': did you mean 'search'; see tapr --help\n"
    assert run(monkeypatch, "xyzzy") == 2
    assert "did you mean" not in capsys.readouterr().err
