"""Pictures in the terminal, where it can show them: by the protocols of kitty and iTerm2, or as sixels."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from PIL import Image
from rich.cells import set_cell_size

from tapr.errors import BadOption
from tapr.images.decode import BadImage, load_image
from tapr.utils.safe_text import printable

Protocol = Literal["kitty", "iterm2", "sixel"]
MOST = 24  # pictures; more would push the ranking out of sight
COLUMNS, ROWS = 16, 8  # of one picture, in cells
_CELL = 10, 20  # pixels, where the terminal does not tell
_CHUNK = 4096  # bytes of one command of kitty's
_PATIENCE = 1.0  # seconds in which a terminal answers what it can do, also at the far end of a slow line
_KITTY = ("xterm-kitty", "xterm-ghostty")
_PLAIN = ("", "dumb", "linux")  # no pictures, and some of them no answer
_ITERM2 = ("iTerm.app", "WezTerm", "mintty")


def protocol_of(environment: Mapping[str, str], attributes: Callable[[], str]) -> Protocol | None:
    """How this terminal takes pictures. `attributes` asks it, which takes a moment."""
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if term in _PLAIN:
        return None
    # tmux and screen hand on the names of the terminal around them, and not its pictures
    inside_another = "TMUX" in environment or term.startswith(("tmux", "screen"))
    if not inside_another:
        if "KITTY_WINDOW_ID" in environment or term in _KITTY:
            return "kitty"
        if program in _ITERM2 or environment.get("LC_TERMINAL") == "iTerm2":
            return "iterm2"
    return "sixel" if "4" in attributes().split(";") else None


def wanted(asked: bool | None, *, as_json: bool = False) -> Protocol | None:
    """Whether to show pictures, and how; who asks for them where there can be none is told."""
    if asked is False or (asked is None and as_json):
        return None
    is_terminal = sys.stdout.isatty() and not as_json
    found = protocol_of(os.environ, _attributes) if is_terminal else None
    if asked and found is None:
        what = "this terminal cannot show pictures: kitty, iTerm2 and terminals with sixel can"
        if not is_terminal:
            what = "--thumbnails is for a terminal, and the output goes elsewhere"
        raise BadOption(f"{what}; leave --thumbnails out", "thumbnails")
    return found


def print_thumbnails(pictures: Sequence[tuple[str, str]], protocol: Protocol) -> None:
    """Paths and names, in rows as wide as the terminal."""
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    for text in rows_of(pictures[:MOST], protocol, width, _cell_size()):
        sys.stdout.write(text)
    sys.stdout.flush()


def rows_of(
    pictures: Sequence[tuple[str, str]], protocol: Protocol, width: int, cell: tuple[int, int] = _CELL
) -> Iterator[str]:
    per_row = max(1, (width + 1) // (COLUMNS + 1))
    for first in range(0, len(pictures), per_row):
        lot = pictures[first : first + per_row]
        columns = len(lot) * (COLUMNS + 1) - 1
        sheet = Image.new("RGBA", (columns * cell[0], ROWS * cell[1]))
        for place, (path, _) in enumerate(lot):
            picture = _small(path, (COLUMNS * cell[0], ROWS * cell[1]))
            if picture is not None:
                left = place * (COLUMNS + 1) * cell[0] + (COLUMNS * cell[0] - picture.width) // 2
                sheet.paste(picture, (left, (ROWS * cell[1] - picture.height) // 2))
        names = " ".join(set_cell_size(printable(name), COLUMNS) for _, name in lot)
        yield f"{_SENT[protocol](sheet, columns)}\n{names.rstrip()}\n"


def _kitty(sheet: Image.Image, columns: int) -> str:
    data = base64.b64encode(_png(sheet)).decode()
    pieces = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    said = f"a=T,f=100,q=2,c={columns},r={ROWS},"
    return "".join(
        f"\x1b_G{said if number == 0 else ''}m={int(number < len(pieces) - 1)};{piece}\x1b\\"
        for number, piece in enumerate(pieces)
    )


def _iterm2(sheet: Image.Image, columns: int) -> str:
    data = _png(sheet)
    said = f"inline=1;size={len(data)};width={columns};height={ROWS};preserveAspectRatio=1"
    return f"\x1b]1337;File={said}:{base64.b64encode(data).decode()}\x07"


def _sixel(sheet: Image.Image, columns: int) -> str:
    """Six rows of pixels at a time, colour by colour; what is see-through is left as the terminal has it."""
    colours = sheet.convert("RGB").quantize(255, dither=Image.Dither.NONE)
    numbers, seen = np.array(colours), np.array(sheet.getchannel("A")) > 127
    palette = np.array(colours.getpalette(), np.int64).reshape(-1, 3) * 100 // 255
    used = np.unique(numbers[seen])
    out = [f'\x1bP0;1q"1;1;{sheet.width};{sheet.height}']
    out += [f"#{one};2;{';'.join(map(str, palette[one]))}" for one in used]
    for top in range(0, sheet.height, 6):
        band, shown = numbers[top : top + 6], seen[top : top + 6]
        bits = 1 << np.arange(len(band))[:, None]
        lines = [f"#{one}{_runs((((band == one) & shown) * bits).sum(axis=0) + 63)}" for one in np.unique(band[shown])]
        out.append("$".join(lines) + "-")
    return "".join(out) + "\x1b\\"


def _runs(letters: np.ndarray) -> str:
    """63, 63, 63, 63, 64 -> !4?@"""
    starts = np.flatnonzero(np.diff(letters, prepend=-1))
    lengths = np.diff(starts, append=len(letters))
    return "".join(
        f"!{length}{chr(letters[start])}" if length > 3 else chr(letters[start]) * length
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    )


_SENT: dict[Protocol, Callable[[Image.Image, int], str]] = {"kitty": _kitty, "iterm2": _iterm2, "sixel": _sixel}


def _small(path: str, size: tuple[int, int]) -> Image.Image | None:
    try:
        picture = load_image(path, side=min(size))
    except BadImage:
        return None  # its place stays empty; the ranking names it
    scale = min(size[0] / picture.width, size[1] / picture.height)
    return picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))


def _png(sheet: Image.Image) -> bytes:
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _cell_size() -> tuple[int, int]:
    """Width and height of a character in pixels."""
    try:
        import fcntl
        import struct
        import termios

        answer = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, width, height = struct.unpack("HHHH", answer)
    except (ImportError, OSError):
        return _CELL
    return (width // columns, height // rows) if width >= columns > 0 and height >= rows > 0 else _CELL


def _attributes() -> str:
    """The terminal's answer to "what are you" (DA1): numbers, of which 4 is sixel; "" where none comes in time."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return ""
    if not sys.stdin.isatty():
        return ""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    answer = b""
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        sys.stdout.write("\x1b[c")
        sys.stdout.flush()
        while not answer.endswith(b"c") and select.select([descriptor], [], [], _PATIENCE)[0]:
            piece = os.read(descriptor, 64)
            if not piece:
                break
            answer += piece
    except OSError:
        return ""
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
    return answer.decode("ascii", "replace").rpartition("?")[2].removesuffix("c")
