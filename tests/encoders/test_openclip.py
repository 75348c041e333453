"""The open_clip encoder on real checkpoint files of random weights: a tiny model, and ViT-B-32 as it is."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr.encoders.base import Encoder, unit
from tapr.encoders.local_tokens import EXTRACTORS, pooled_grid
from tapr.encoders.registry import card_name
from tapr.gallery import Gallery
from tests.pictures import write_flags

torch = pytest.importorskip("torch", reason="torch is not installed")
huggingface_hub = pytest.importorskip("huggingface_hub", reason="open_clip is not installed")

from tapr.encoders.open_clip_import import import_open_clip  # noqa: E402
from tapr.encoders.openclip import OpenClipEncoder  # noqa: E402
from tests.refusals import refused  # noqa: E402

open_clip = import_open_clip()

TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 32, "head_width": 8, "patch_size": 4},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Architectures registered with open_clip as a user would, and a checkpoint of the first, tiny.pt."""
    folder = tmp_path_factory.mktemp("open_clip")
    wider = {**TINY, "embed_dim": 24}
    for name, config in {"tiny": TINY, "tiny-quickgelu": {**TINY, "quick_gelu": True}, "wider": wider}.items():
        path = folder / f"tapr-{name}.json"
        path.write_text(json.dumps(config))
        open_clip.add_model_config(path)
    torch.manual_seed(11)
    torch.save(open_clip.create_model("tapr-tiny").state_dict(), folder / "tiny.pt")
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> OpenClipEncoder:
    return OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), device="cpu")


def pictures(count: int = 3, size: tuple[int, int] = (90, 64)) -> list[Image.Image]:
    rng = np.random.default_rng(2)
    return [Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)) for _ in range(count)]


def plain_pixels(prepared: list[Any], mean: Any = None, std: Any = None) -> Any:
    """Prepared pictures as open_clip's own transform would hand them to the model."""
    array = np.stack(prepared) / 255
    array = (array - (mean or open_clip.OPENAI_DATASET_MEAN)) / (std or open_clip.OPENAI_DATASET_STD)
    return torch.from_numpy(array.astype(np.float32)).permute(0, 3, 1, 2)


def fresh_model(name: str, file: Path) -> Any:
    return open_clip.create_model(name, pretrained=str(file)).eval()


def test_vectors_of_a_checkpoint_file(folder: Path, encoder: OpenClipEncoder) -> None:
    assert isinstance(encoder, Encoder)
    card = encoder.card
    assert card.name == f"open_clip:tapr-tiny/{folder / 'tiny.pt'}"
    assert (card.dim, card.grid, card.extractor, card.image_size) == (16, (8, 8), "clearclip", 64)

    prepared = [encoder.prepare(picture) for picture in pictures()]
    evidence = encoder.encode_images(prepared)
    assert evidence.local_vectors.shape == (3, 64, 16)
    np.testing.assert_allclose(np.linalg.norm(evidence.local_vectors, axis=-1), 1, atol=1e-6)

    model = fresh_model("tapr-tiny", folder / "tiny.pt")
    texts = ["a red hat", "two birds"]
    with torch.no_grad():
        images = model.encode_image(plain_pixels(prepared), normalize=True).numpy()
        wanted = model.encode_text(open_clip.tokenize(texts), normalize=True).numpy()
    np.testing.assert_allclose(evidence.global_vectors, images, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_texts(texts), wanted, atol=1e-6)
    np.testing.assert_array_equal(encoder.encode_atoms(texts), encoder.encode_texts(texts))


def test_nothing_in_nothing_out(encoder: OpenClipEncoder) -> None:
    assert encoder.encode_images([]).local_vectors.shape == (0, 64, 16)
    assert encoder.encode_texts([]).shape == (0, 16)


def test_a_picture_does_not_depend_on_its_batch(encoder: OpenClipEncoder) -> None:
    prepared = [encoder.prepare(picture) for picture in pictures(19)]
    together = encoder.encode_images(prepared)
    for number in (0, 7, 8, 18):
        alone = encoder.encode_images(prepared[number : number + 1])
        np.testing.assert_allclose(alone.global_vectors[0], together.global_vectors[number], atol=1e-6)
        np.testing.assert_allclose(alone.local_vectors[0], together.local_vectors[number], atol=1e-6)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_every_extractor_keeps_the_global_vectors(folder: Path, encoder: OpenClipEncoder, extractor: str) -> None:
    other = OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), extractor=extractor, device="cpu")
    prepared = [encoder.prepare(picture) for picture in pictures()]
    found, wanted = other.encode_images(prepared), encoder.encode_images(prepared)
    # another model in memory: a library may round by where its arrays lie
    np.testing.assert_allclose(found.global_vectors, wanted.global_vectors, atol=1e-6)
    assert other.card.extractor == extractor
    assert np.allclose(found.local_vectors, wanted.local_vectors, atol=1e-5) == (extractor == "clearclip")


def test_fit_decides_what_of_the_picture_is_seen(folder: Path, encoder: OpenClipEncoder) -> None:
    padded = OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), fit="pad", device="cpu")
    picture = Image.new("RGB", (128, 64), "black")
    assert encoder.prepare(picture).max() == 0
    assert padded.prepare(picture)[0].min() == 255
    assert padded.card.fit == "pad"
    with refused("bad_input", "'stretch'"):
        OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), fit="stretch")


def test_template_and_what_is_not_read(folder: Path, encoder: OpenClipEncoder) -> None:
    framed = OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), template="a photo of {}", device="cpu")
    np.testing.assert_array_equal(framed.encode_texts(["a cat"]), encoder.encode_texts(["a photo of a cat"]))
    text = " ".join(["cat"] * 75 + ["Dog", "bird"])
    assert encoder.unread(text) == "Dog bird"
    assert framed.unread(text) == "cat cat cat Dog bird"
    assert encoder.unread("a cat") == ""
    np.testing.assert_array_equal(encoder.encode_texts([text]), encoder.encode_texts([text.removesuffix(" Dog bird")]))
    with refused("bad_option", "'a photo'", option="template"):
        OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), template="a photo")


def test_the_digest_follows_the_weights_not_the_file(folder: Path, encoder: OpenClipEncoder, tmp_path: Path) -> None:
    weights = torch.load(folder / "tiny.pt")
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}}, tmp_path / "same.pt"
    )
    same = OpenClipEncoder("tapr-tiny", str(tmp_path / "same.pt"), device="cpu")
    assert same.card.weights_sha256 == encoder.card.weights_sha256
    weights["visual.proj"][0, 0] += 1
    torch.save(weights, tmp_path / "other.pt")
    other = OpenClipEncoder("tapr-tiny", str(tmp_path / "other.pt"), device="cpu")
    assert other.card.weights_sha256 != encoder.card.weights_sha256


def test_pixel_statistics_beside_the_checkpoint(folder: Path, encoder: OpenClipEncoder, tmp_path: Path) -> None:
    (tmp_path / "tiny.pt").write_bytes((folder / "tiny.pt").read_bytes())
    config = tmp_path / "open_clip_config.json"
    config.write_text(json.dumps({"model_cfg": TINY, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}))
    other = OpenClipEncoder("tapr-tiny", str(tmp_path / "tiny.pt"), device="cpu")
    prepared = [other.prepare(picture) for picture in pictures()]
    with torch.no_grad():
        pixels = plain_pixels(prepared, [0.5] * 3, [0.5] * 3)
        wanted = fresh_model("tapr-tiny", folder / "tiny.pt").encode_image(pixels, normalize=True).numpy()
    np.testing.assert_allclose(other.encode_images(prepared).global_vectors, wanted, atol=1e-6)
    assert other.card.weights_sha256 != encoder.card.weights_sha256
    config.write_text("[]")
    with refused("bad_weights", "open_clip_config.json"):
        OpenClipEncoder("tapr-tiny", str(tmp_path / "tiny.pt"), device="cpu")


def test_a_file_whose_statistics_nothing_says_is_asked_about(
    folder: Path, encoder: OpenClipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, published = folder / "tiny.pt", open_clip.pretrained._PRETRAINED
    half = {"hf_hub": "someone/tiny/", "mean": (0.5,) * 3, "std": (0.5,) * 3, "quick_gelu": True}
    plain = {"hf_hub": "someone/tiny/", "mean": open_clip.OPENAI_DATASET_MEAN, "std": open_clip.OPENAI_DATASET_STD}
    monkeypatch.setitem(published, "tapr-tiny", {"half": half, "plain": plain})
    with refused("bad_weights", "/half@/"):
        OpenClipEncoder("tapr-tiny", str(file), device="cpu")
    named = OpenClipEncoder("tapr-tiny", f"half@{file}", device="cpu")
    assert named.card.pixels == "bicubic; mean 0.5, 0.5, 0.5; deviation 0.5, 0.5, 0.5"
    assert named.card.name == card_name(f"open_clip:tapr-tiny/half@{file}")
    assert named.card.name.startswith("open_clip:tapr-tiny-quickgelu/half@/")  # its activation too
    # where all tags agree there is nothing to ask
    monkeypatch.setitem(published, "tapr-tiny", {"half": {**half, "quick_gelu": False}})
    assert OpenClipEncoder("tapr-tiny", str(file), device="cpu").card.pixels == named.card.pixels
    assert encoder.card.pixels.startswith("bicubic; mean 0.4815, ")
    with refused("bad_weights", "ViT-L-14"):
        OpenClipEncoder("ViT-L-14", str(file), device="cpu")


@pytest.fixture
def hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tag of the tiny model with QuickGELU and its own pixel statistics; an empty hub cache, no way to the hub."""

    def unreachable() -> Any:
        raise OSError("Name or service not known")

    tag = {"hf_hub": "someone/tiny/", "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7), "quick_gelu": True}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tapr-tiny", {"some_tag": tag})
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "get_session", unreachable)
    return tmp_path


def test_a_tag_in_the_cache_needs_no_network(
    folder: Path, hub: Path, encoder: OpenClipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub / "models--someone--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "open_clip_pytorch_model.bin").write_bytes((folder / "tiny.pt").read_bytes())
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    tagged = OpenClipEncoder("tapr-tiny", "some_tag", extractor="tokens", device="cpu")
    assert tagged.card.name == "open_clip:tapr-tiny-quickgelu/some_tag"  # the weights' own activation, and it says so
    prepared = [tagged.prepare(picture) for picture in pictures()]
    model = fresh_model("tapr-tiny-quickgelu", folder / "tiny.pt")
    with torch.no_grad():
        pixels = plain_pixels(prepared, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
        wanted = model.encode_image(pixels, normalize=True).numpy()
        gelu = fresh_model("tapr-tiny", folder / "tiny.pt").encode_image(pixels, normalize=True).numpy()
    found = tagged.encode_images(prepared).global_vectors
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(found - gelu).max() > 1e-4


def test_a_bank_is_opened_again_by_either_name_of_its_encoder(
    folder: Path, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """open_clip offers some weights under two models, with and without -quickgelu; the card names the true one."""
    tag = open_clip.pretrained._PRETRAINED["tapr-tiny"]["some_tag"]
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tapr-tiny-quickgelu", {"some_tag": tag})
    monkeypatch.setattr("tapr.encoders.openclip._cached", lambda settings: folder / "tiny.pt")
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    names = ("open_clip:tapr-tiny/some_tag", "open_clip:tapr-tiny-quickgelu/some_tag")
    for name in (*names, names[0]):
        gallery = Gallery.build(tmp_path / "g", tmp_path / "p", name, extractor="tokens")
        assert gallery.card.name == card_name(name) == names[1]
    with refused("bad_option", "'open_clip:tapr-tiny-quickgelu/some_tag'"):
        Gallery.build(tmp_path / "g", tmp_path / "p", f"open_clip:tapr-tiny/{folder / 'tiny.pt'}")


@pytest.mark.usefixtures("hub")
def test_a_tag_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("no_weights", "some_tag", "Name or service not known"):
        OpenClipEncoder("tapr-tiny", "some_tag", device="cpu")
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    with refused("no_weights", "TAPR_OFFLINE"):
        OpenClipEncoder("tapr-tiny", "some_tag", device="cpu")


def test_wrong_names_and_files_are_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    good = str(folder / "tiny.pt")
    (tmp_path / "torn.pt").write_bytes((folder / "tiny.pt").read_bytes()[:5000])
    (tmp_path / "torn.safetensors").write_bytes(b"not safe")
    torch.save([1, 2], tmp_path / "list.pt")
    for model, pretrained, code, fact in [
        ("ViT-B-33", good, "unknown_name", "'ViT-B-33'"),
        ("ViT-B-32", "laion3b", "unknown_name", "'laion3b'"),
        ("tapr-tiny", "nowhere.pt", "bad_weights", "nowhere.pt"),
        ("tapr-tiny", str(tmp_path), "bad_weights", str(tmp_path)),
        ("tapr-tiny", str(tmp_path / "torn.pt"), "bad_weights", "torn.pt"),
        ("tapr-tiny", str(tmp_path / "torn.safetensors"), "bad_weights", "torn.safetensors"),
        ("tapr-tiny", str(tmp_path / "list.pt"), "bad_weights", "list.pt"),
        ("tapr-wider", good, "bad_weights", "tapr-wider"),
        ("RN50", "openai", "unfit_encoder", "RN50"),
        ("coca_ViT-B-32", good, "unfit_encoder", "coca_ViT-B-32"),
        ("xlm-roberta-base-ViT-B-32", good, "unfit_encoder", "text tower"),
    ]:
        with refused(code, fact):
            OpenClipEncoder(model, pretrained, device="cpu")
    with refused("bad_option", "'dino'", option="extractor"):
        OpenClipEncoder("tapr-tiny", good, extractor="dino")


def test_devices(folder: Path) -> None:
    for device in ("gpu", "meta", "cuda:99"):
        with refused("no_device", device):
            OpenClipEncoder("tapr-tiny", str(folder / "tiny.pt"), device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_half_precision_on_a_gpu_is_near(folder: Path, encoder: OpenClipEncoder, extractor: str) -> None:
    file = str(folder / "tiny.pt")
    gpu, cpu = (OpenClipEncoder("tapr-tiny", file, extractor=extractor, device=device) for device in (None, "cpu"))
    assert gpu.card == cpu.card
    prepared = [encoder.prepare(picture) for picture in pictures(5)]
    near, exact = gpu.encode_images(prepared), cpu.encode_images(prepared)
    np.testing.assert_allclose(near.global_vectors, exact.global_vectors, atol=5e-3)
    np.testing.assert_allclose(near.local_vectors, exact.local_vectors, atol=5e-3)
    np.testing.assert_allclose(gpu.encode_texts(["a cat"]), cpu.encode_texts(["a cat"]), atol=5e-3)


def test_broken_weights_are_noticed(folder: Path, tmp_path: Path) -> None:
    weights = torch.load(folder / "tiny.pt")
    weights["visual.proj"][:] = float("nan")
    torch.save(weights, tmp_path / "nan.pt")
    broken = OpenClipEncoder("tapr-tiny", str(tmp_path / "nan.pt"), device="cpu")
    with refused("bad_vectors"):
        broken.encode_images([broken.prepare(picture) for picture in pictures(1)])


@pytest.mark.parametrize("missing", ["torch", "open_clip"])
def test_without_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with refused("missing_extra", "tapr-cir[openclip]"):
        OpenClipEncoder("ViT-B-32", "openai")


def test_the_published_checkpoints() -> None:
    for model, tag, dim, locals_count, mean in [
        ("ViT-B-32", "laion2b_s34b_b79k", 512, 49, open_clip.OPENAI_DATASET_MEAN),
        ("ViT-L-14", "laion2b_s32b_b82k", 768, 64, (0.5, 0.5, 0.5)),
        ("ViT-bigG-14", "laion2b_s39b_b160k", 1280, 64, open_clip.OPENAI_DATASET_MEAN),
    ]:
        config, settings = open_clip.get_model_config(model), open_clip.get_pretrained_cfg(model, tag)
        side = config["vision_cfg"]["image_size"] // config["vision_cfg"]["patch_size"]
        rows, columns = pooled_grid((side, side))
        assert (config["embed_dim"], rows * columns, tuple(settings["mean"])) == (dim, locals_count, tuple(mean))
        assert settings["interpolation"] == "bicubic"  # as Frame resizes


@pytest.fixture(scope="module")
def vit_b_32() -> Iterator[Path]:
    """The real architecture's checkpoint, 600 MB of random weights."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vit_b_32.pt"
        torch.manual_seed(4)
        torch.save(open_clip.create_model("ViT-B-32").state_dict(), file)
        yield file


def test_vit_b_32_by_a_hand_written_forward_pass(vit_b_32: Path) -> None:
    encoder = OpenClipEncoder("ViT-B-32", str(vit_b_32), extractor="tokens", device="cpu")
    prepared = [encoder.prepare(picture) for picture in pictures(2, (300, 200))]
    evidence = encoder.encode_images(prepared)
    assert evidence.local_vectors.shape == (2, 49, 512)

    visual = encoder._network.visual
    with torch.no_grad():
        x = visual.conv1(plain_pixels(prepared)).flatten(2).transpose(1, 2)
        cls = visual.class_embedding.expand(2, 1, -1)
        x = visual.ln_pre(torch.cat([cls, x], dim=1) + visual.positional_embedding)
        for block in visual.transformer.resblocks:
            normed = block.ln_1(x)
            x = x + block.attn(normed, normed, normed, need_weights=False)[0]
            x = x + block.mlp(block.ln_2(x))
        vectors = (visual.ln_post(x) @ visual.proj).numpy()
    np.testing.assert_allclose(evidence.global_vectors, unit(vectors[:, 0]), atol=2e-6)
    np.testing.assert_allclose(evidence.local_vectors, unit(vectors[:, 1:]), atol=2e-6)
