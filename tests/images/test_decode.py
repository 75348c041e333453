import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tapr.images.decode import BadImage, Limits, decode_sized, load_image, looks_like_picture
from tests.pictures import flag, png
from tests.refusals import refused


def encoded(image: Image.Image, format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def test_a_camera_turned_on_its_side_gives_an_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate 90 degrees clockwise to show
    image = load_image(encoded(flag("red", "blue", size=(60, 20)), "JPEG", exif=exif))
    assert image.size == (20, 60)
    top = image.getpixel((10, 5))
    assert isinstance(top, tuple)
    assert top[0] > 200


def test_transparency_lies_on_white() -> None:
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert load_image(png(clear)).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 0)
    assert load_image(encoded(palette, "GIF", transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    assert load_image(png(Image.new("LA", (2, 2), (0, 0)))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "YCbCr", "LAB", "HSV"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = flag("red", "white").convert("RGB").convert(mode) if mode != "LAB" else Image.new("LAB", (4, 4))
    assert load_image(image).mode == "RGB"


def test_cmyk_jpeg_keeps_its_colours() -> None:
    red = load_image(encoded(flag("red").convert("CMYK"), "JPEG")).getpixel((5, 5))
    assert isinstance(red, tuple)
    assert red[0] > 200
    assert red[1] < 60


def test_sixteen_bits_and_floats_are_scaled() -> None:
    deep = Image.fromarray(np.full((4, 4), 32896, np.uint16))
    assert load_image(png(deep)).getpixel((0, 0)) == (128, 128, 128)
    floats = Image.fromarray(np.full((4, 4), 0.5, np.float32))
    assert load_image(encoded(floats, "TIFF")).getpixel((0, 0)) == (128, 128, 128)


def test_an_animation_is_its_first_frame() -> None:
    data = encoded(flag("red"), "GIF", save_all=True, append_images=[flag("blue")])
    assert load_image(data).getpixel((5, 5)) == (255, 0, 0)


def test_big_jpegs_are_decoded_smaller_when_that_is_enough() -> None:
    data = encoded(flag("red", "blue", size=(2000, 1600)), "JPEG")
    assert load_image(data, side=224).size == (1000, 800)  # a half, still twice what is needed
    assert decode_sized(data, side=224)[1] == load_image(data).size == (2000, 1600)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello", "is not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"<!doctype html><p>404", "web page"),
        (png(flag("red"))[:60], "broken or cut off"),
        (encoded(flag("red", size=(300, 300)), "JPEG")[:700], "broken or cut off"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "(broken|not a picture)"),
        (b"\0\0\0\x18ftypheic" + b"\0" * 40, "(HEIC|broken|not a picture)"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        load_image(data)


def test_a_phones_heic_is_read_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC is the extra `heic`")
    buffer = io.BytesIO()
    heif.from_pillow(flag("red", size=(64, 64))).save(buffer)
    red = load_image(buffer.getvalue()).getpixel((30, 30))
    assert isinstance(red, tuple)
    assert red[0] > 200
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as if it were not installed
    with pytest.raises(BadImage, match=r"pip install 'tapr-cir\[heic\]'"):
        load_image(buffer.getvalue())


def test_limits_are_checked_before_anything_is_decoded() -> None:
    with refused("too_large", "100 x 100"):
        load_image(png(flag("red", size=(100, 100))), limits=Limits(pixels=9999))
    with refused("too_large"):
        load_image(png(flag("red")), limits=Limits(bytes=10))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with refused("not_a_picture", "none.png"):
        load_image(tmp_path / "none.png")
    with refused("not_a_picture"):
        load_image(tmp_path)


def test_a_picture_is_known_by_suffix_or_by_its_first_bytes(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_bytes(png(flag("red")))
    text = tmp_path / "README"
    text.write_text("hello")
    assert looks_like_picture(bare)
    assert not looks_like_picture(text)
    assert looks_like_picture(Path("A.JPG"))
    assert not looks_like_picture(Path("notes.txt"))


# Memory and odd shapes


def old_way(image: Image.Image) -> Image.Image:
    """RGB of the whole picture at once, as it was made before it was made in bands."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        top = max(65535.0 if image.mode.startswith("I") else 1.0, float(values.max()))
        return Image.fromarray(np.clip(values / top * 255, 0, 255).round().astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize(
    ("mode", "format_"),
    [("RGB", "PNG"), ("RGB", "WEBP"), ("RGB", "TIFF"), ("RGBA", "PNG"), ("RGBA", "WEBP"), ("LA", "PNG"), ("L", "PNG"),
     ("P", "PNG"), ("P", "GIF"), ("1", "PNG"), ("CMYK", "TIFF"), ("I", "TIFF"), ("F", "TIFF")],
)  # fmt: skip
def test_the_pixels_of_ordinary_pictures_are_those_of_the_file(mode: str, format_: str) -> None:
    image = noise(1300, 900)  # more than one band
    data = encoded(image if mode == "RGBA" else image.convert("RGB").convert(mode), format_)
    expected = old_way(Image.open(io.BytesIO(data)))
    assert decode_sized(data, side=224)[0].tobytes() == load_image(data).tobytes() == expected.tobytes()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "TIFF"])
def test_every_orientation_is_made_upright_as_pillow_does_it(orientation: int, format_: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise(40, 30).convert("RGB"), format_, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    found, full = decode_sized(data)
    assert full == found.size == expected.size
    assert found.tobytes() == expected.tobytes()


def test_only_large_pictures_are_reduced_and_keep_twice_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = png(flag("red", "blue", size=(905, 603)))
    assert load_image(data, side=50).size == (905, 603)
    monkeypatch.setattr("tapr.images.decode._LARGE", 100_000)
    assert load_image(data, side=50).size == (905, 603)  # less than people are shown
    monkeypatch.setattr("tapr.images.decode._SHOWN", 80)
    small, full = decode_sized(data, side=50)
    assert full == (905, 603)
    assert small.size == (151, 101)  # a sixth, rounded up
    assert small.getpixel((10, 50)) == (255, 0, 0)
    assert small.getpixel((140, 100)) == (0, 0, 255)
    assert load_image(data).size == (905, 603)  # no side: nobody said that less is enough


def test_a_forged_icon_is_refused() -> None:
    inner = bytearray(png(Image.new("RGB", (16, 16))))
    inner[16:24] = struct.pack(">II", 9_000, 9_000)
    inner[29:33] = struct.pack(">I", zlib.crc32(inner[12:29]))
    icon = struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
    with refused("not_a_picture"):
        load_image(bytes(icon))


def test_formats_that_start_other_programs_are_not_opened() -> None:
    with refused("not_a_picture"):
        load_image(encoded(flag("red"), "EPS"))
