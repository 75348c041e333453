"""Pictures and links in a terminal: what is sent to which, and that nothing of it goes anywhere else."""

from __future__ import annotations

import base64
import io
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr.cli.thumbnails import COLUMNS, ROWS, Protocol, protocol_of, rows_of
from tests.cli.terminal import run
from tests.pictures import flag, png, write_flags


@pytest.mark.parametrize(
    ("environment", "attributes", "found"),
    [
        ({"TERM": "xterm-kitty"}, "", "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "", "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "", "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "", "iterm2"),
        ({"TERM": "xterm-256color"}, "62;4;22", "sixel"),
        ({"TERM": "xterm-256color"}, "62;22;44", None),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, "1;2", None),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, "1;2;4", "sixel"),
        ({}, "4", None),
        ({"TERM": "dumb"}, "4", None),
    ],
)
def test_which_terminal_takes_which_pictures(
    environment: dict[str, str], attributes: str, found: Protocol | None
) -> None:
    assert protocol_of(environment, lambda: attributes) == found


def decoded(text: str, protocol: Protocol) -> Image.Image:
    """What a terminal makes of it."""
    if protocol == "sixel":
        return from_sixel(text)
    if protocol == "kitty":
        pieces = re.findall(r"\x1b_G(.*?);(.*?)\x1b\\", text)
        assert pieces[0][0].startswith(f"a=T,f=100,q=2,c={2 * COLUMNS + 1},r={ROWS},")
        assert [said[-3:] for said, _ in pieces] == ["m=1"] * (len(pieces) - 1) + ["m=0"]
        data = "".join(piece for _, piece in pieces)
    else:
        found = re.search(r"\x1b\]1337;File=inline=1;size=\d+;width=33;height=8;preserveAspectRatio=1:(.*)\x07", text)
        assert found
        data = found[1]
    return Image.open(io.BytesIO(base64.b64decode(data)))


def from_sixel(text: str) -> Image.Image:
    head, body = re.fullmatch(r'\x1bP0;1q"1;1;(\d+;\d+)(.*)\x1b\\', text, re.DOTALL).groups()  # type: ignore[union-attr]
    width, height = map(int, head.split(";"))
    colours = {int(n): tuple(map(int, rgb.split(";"))) for n, rgb in re.findall(r"#(\d+);2;(\d+;\d+;\d+)", body)}
    pixels = np.zeros((height + 6, width, 4), np.uint8)
    for top, band in enumerate(re.sub(r"#\d+;2;\d+;\d+;\d+", "", body).split("-")):
        for line in filter(None, band.split("$")):
            number, runs = re.fullmatch(r"#(\d+)(.*)", line).groups()  # type: ignore[union-attr]
            letters = re.sub(r"!(\d+)(.)", lambda run: run[2] * int(run[1]), runs)
            for left, letter in enumerate(letters):
                for bit in range(6):
                    if (ord(letter) - 63) >> bit & 1:
                        rgb = [round(part * 2.55) for part in colours[int(number)]]
                        pixels[6 * top + bit, left] = (*rgb, 255)
    return Image.fromarray(pixels[:height])


@pytest.mark.parametrize("protocol", ["kitty", "iterm2", "sixel"])
def test_a_terminal_gets_the_pictures_in_their_order(protocol: Protocol, tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(png(flag("red")))
    pictures = [(str(tmp_path / "red.png"), "1. red\x1b[31m"), (str(tmp_path / "gone.png"), "2. gone")]
    (text,) = rows_of(pictures, protocol, width=40)
    sequence, names, rest = text.rsplit("\n", 2)
    assert (names.split(), rest) == (["1.", "red\\x1b[31m", "2.", "gone"], "")  # a name cannot speak to the terminal
    sheet = decoded(sequence, protocol).convert("RGBA")
    assert sheet.size == ((2 * COLUMNS + 1) * 10, ROWS * 20)
    red, green, blue, alpha = sheet.getpixel((80, 80))  # type: ignore[misc]
    assert (red > 150, green < 100, blue < 100, alpha) == (True, True, True, 255)
    assert sheet.getpixel((250, 80))[3] == 0  # type: ignore[index]  # a file that is gone leaves its place empty


def test_pictures_stand_in_rows_as_wide_as_the_terminal(tmp_path: Path) -> None:
    assert [text.count(".") for text in rows_of([("", f"{n}.") for n in range(5)], "sixel", width=33)] == [2, 2, 1]
    assert len(list(rows_of([("", "x")] * 3, "sixel", width=5))) == 3


def test_what_is_no_terminal_gets_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    asked = ("search", "-g", tmp_path / "g", "--text", "red", "--explain", tmp_path / "why.html")
    done = run(*asked)
    assert "\x1b" not in done.out + done.err
    refused = run(*asked, "--thumbnails")
    assert (refused.code, refused.out, "leave --thumbnails out" in refused.err) == (2, "", True)


@pytest.mark.skipif(os.name == "nt", reason="no pseudo terminals")
def test_a_terminal_gets_pictures_and_links(tmp_path: Path) -> None:
    import pty

    write_flags(tmp_path / "p", [("red",), ("blue",)])
    run("index", tmp_path / "p", "-g", tmp_path / "g", "--encoder", "fake")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "TAPR_HOME": str(tmp_path)}
    environment = {name: value for name, value in environment.items() if name not in ("TMUX", "NO_COLOR", "CI")}
    command = [sys.executable, "-m", "tapr", "search", "-g", "g", "--text", "red", "--explain", "why.html"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as process:
        os.close(theirs)
        text = everything(ours)
    assert process.returncode == 0, text
    assert text.index("\x1b]1337;File=inline=1;") < text.index("Looking for")
    links = re.findall(r"\x1b\]8;[^;]*;(file://[^\x1b]*)\x1b\\(.*?)\x1b\]8;;\x1b\\", text)
    places = [f"file://{tmp_path}/p/red.png", f"file://{tmp_path}/p/blue.png", f"file://{tmp_path}/why.html"]
    assert [place for place, _ in links] == places
    assert "why.html" in text.strip().splitlines()[-1]  # last, where it is seen


def everything(descriptor: int, patience: float = 60.0) -> str:
    data, until = b"", time.monotonic() + patience
    while time.monotonic() < until:
        if not select.select([descriptor], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        data += piece
    os.close(descriptor)
    return data.decode()
