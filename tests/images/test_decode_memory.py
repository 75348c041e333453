"""The estimate of decoding memory holds for files that are laid out to escape it."""

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tapr.images.buffers import jpeg2000_tile, jpeg_coefficients, tiff_pieces
from tapr.images.decode import BadImage, Limits, PictureTooLarge, decode
from tests.images.crafted import MAKERS, jpeg, png, tiff

ROOT = Path(__file__).parents[2]


def test_a_jpeg_of_one_scan_holds_no_coefficients() -> None:
    assert jpeg_coefficients(jpeg(640, 480, [0x22, 0x11, 0x11], [[0, 1, 2]])) == 0


@pytest.mark.parametrize("frame", [0xC0, 0xC2])
def test_a_jpeg_of_several_scans_holds_all_coefficients(frame: int) -> None:
    """One scan per component, or progressive: two bytes per sample, whatever the header calls it."""
    data = jpeg(640, 480, [0x11] * 4, [[0], [1], [2], [3]], frame=frame)
    assert jpeg_coefficients(data) == 640 * 480 * 4 * 2


def test_blocks_beside_the_picture_count() -> None:
    data = jpeg(1, 8, [0x41, 0x11], [[0], [1]])  # four blocks of the first component in a row
    assert jpeg_coefficients(data) == (4 + 1) * 64 * 2


def test_strips_and_tiles_of_a_tiff() -> None:
    assert tiff_pieces(tiff(100, 80, bands=4, bits=16)) == (100 * 80 * 8, False)
    assert tiff_pieces(tiff(100, 80, bands=4, bits=16, rows=10)) == (100 * 10 * 8, False)
    assert tiff_pieces(tiff(100, 80, bands=3, bits=8, tile=256, orientation=6)) == (256 * 256 * 3, True)


def test_small_blocks_of_a_jpeg_2000_count() -> None:
    large, small = MAKERS["jpeg 2000, one tile, RGBA"](250_000), MAKERS["jpeg 2000, blocks of 4 x 4"](250_000)
    assert jpeg2000_tile(small) > 4 * jpeg2000_tile(large)


def test_a_scan_per_component_is_refused_where_an_upload_may_not_take_so_much() -> None:
    data = jpeg(9_400, 9_400, [0x11] * 4, [[0], [1], [2], [3]])  # 1.4 MB, 88 megapixels: 700 MB when decoded
    with pytest.raises(PictureTooLarge, match="bytes of memory"):
        decode(data, side=224, limits=Limits(memory=512 * 2**20))


def test_one_row_of_pixels_is_converted_in_pieces() -> None:
    data = png(3_000_000, 1, bits=8, kind=4)
    assert decode(data).size == (3_000_000, 1)


def test_a_truncated_header_is_handled() -> None:
    for make in MAKERS.values():
        data = make(4096)
        for length in (8, 20, 40, 60, len(data) // 3):
            with contextlib.suppress(BadImage):
                decode(data[:length])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the peak of memory from /proc")
def test_no_peak_is_above_its_estimate() -> None:
    if importlib.util.find_spec("pillow_heif") is None:
        pytest.skip("pillow-heif is not installed")
    program = ROOT / "benchmarks" / "decode_memory.py"
    done = subprocess.run(
        [sys.executable, str(program), "--megapixels", "2", "--large", "4"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
