"""Image towers of timm: the tower's own global vector, and local vectors by its own pooling of each patch."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.local_tokens import pooling

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("huggingface_hub", reason="open_clip is not installed")

from tapr.encoders.open_clip_import import import_open_clip  # noqa: E402
from tapr.encoders.openclip import OpenClipEncoder, _token_counts  # noqa: E402
from tapr.encoders.torch_timm import TimmTokens  # noqa: E402
from tests.refusals import refused  # noqa: E402

open_clip = import_open_clip()
import timm  # noqa: E402

TEXT = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
SIGLIP = {"class_token": False, "global_pool": "map"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # arguments of the tower; of open_clip's adapter
    "siglip": (SIGLIP, {"pool": "map", "proj": "none"}),
    "cls": ({}, {"pool": "token", "proj": "linear"}),
    "mean": ({}, {"pool": "avg", "proj": "linear"}),
    "registers": ({**SIGLIP, "reg_tokens": 2}, {"pool": "map", "proj": "mlp"}),
}


CHOSEN: dict[str, Any] = {}  # arguments of the tower that is made next


@timm.models.register_model
def tapr_tiny_vit(pretrained: bool = False, **options: Any) -> Any:
    """A ViT of two blocks over 8 x 10 patches: SigLIP's and the others differ in their arguments alone."""
    options = {**CHOSEN, **options}
    for name in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
        options.pop(name, None)
    made = timm.models.vision_transformer.VisionTransformer(
        img_size=(32, 40), patch_size=4, embed_dim=24, depth=2, num_heads=3, **options
    )
    made.default_cfg = {}  # as timm's own models have one
    return made


def choose(arguments: dict[str, Any]) -> None:
    CHOSEN.clear()
    CHOSEN.update(arguments)


def some_tower(kind: str) -> Any:
    made, adapter = KINDS[kind]
    choose(made)
    torch.manual_seed(4)
    tower = open_clip.timm_model.TimmModel("tapr_tiny_vit", 24, image_size=(32, 40), **adapter)
    with torch.no_grad():
        for weights in tower.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return tower.eval()


def some_pixels() -> Any:
    return torch.randn(3, 3, 32, 40, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_global_vector_is_the_towers_own(kind: str, extractor: str) -> None:
    tower, pixels = some_tower(kind), some_pixels()
    tokens = TimmTokens(tower, extractor)
    found, local = tokens(pixels)
    with torch.no_grad():
        torch.testing.assert_close(found, tower(pixels))
    assert tokens.grid == (8, 5)
    assert local.shape == (3, 40, 24)
    torch.testing.assert_close(local.norm(dim=-1), torch.ones(3, 40))
    assert not tower.trunk.blocks[-1]._forward_pre_hooks


def test_a_local_vector_of_siglip_is_its_attention_pool_over_one_patch() -> None:
    tower, pixels = some_tower("siglip"), some_pixels()
    _, found = TimmTokens(tower, "tokens")(pixels)
    with torch.no_grad():
        features = tower.trunk.forward_features(pixels)  # (B, P, D)
        each = [tower.trunk.attn_pool(features[:, place : place + 1]) for place in range(features.shape[1])]
    cells = torch.from_numpy(pooling((8, 10), (8, 5))) @ torch.stack(each, dim=1)
    torch.testing.assert_close(found, torch.nn.functional.normalize(cells, dim=-1))


@pytest.mark.parametrize("kind", ["siglip", "cls"])
def test_the_last_block_read_again_as_trained_is_the_last_layer(kind: str) -> None:
    """What every extractor is a change of: with the trained attention, the block's own output."""
    tower, pixels = some_tower(kind), some_pixels()
    tokens = TimmTokens(tower, "sclip")
    hidden: list[Any] = []
    hook = tower.trunk.blocks[-1].register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    with torch.no_grad():
        features = tower.trunk.forward_features(pixels)
        hook.remove()
        assert tokens._block is not None
        again = tower.trunk.norm(tokens._block.reread(hidden[0], EXTRACTORS["tokens"]))
    torch.testing.assert_close(again, features[:, tokens._prefix :])


def test_a_map_of_features_has_local_vectors_too() -> None:
    """ConvNeXt: no blocks to be read, so that only the last layer's own vectors are there."""
    torch.manual_seed(1)
    tower = open_clip.timm_model.TimmModel("convnext_atto", 8, image_size=64, pool="avg", proj="linear").eval()
    pixels = torch.randn(2, 3, 64, 64)
    found, local = TimmTokens(tower, "tokens")(pixels)
    with torch.no_grad():
        torch.testing.assert_close(found, tower(pixels))
    assert local.shape == (2, 4, 8)
    with refused("unfit_encoder", "clearclip", "tokens"):
        TimmTokens(tower, "clearclip")


def test_an_encoder_from_a_checkpoint_of_siglips_kind(tmp_path: Path) -> None:
    """Through open_clip as a user names it: pictures in, vectors out; the text tower is SigLIP's kind as well."""
    config = {
        "embed_dim": 24,
        "custom_text": True,
        "vision_cfg": {
            "image_size": 32, "timm_model_name": "tapr_tiny_vit", "timm_model_pretrained": False,
            "timm_pool": "map", "timm_proj": "none",
        },
        "text_cfg": {**TEXT, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"},
    }  # fmt: skip
    (tmp_path / "tapr-tiny-timm.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tapr-tiny-timm.json")
    choose({**SIGLIP, "dynamic_img_size": True})
    torch.manual_seed(2)
    network = open_clip.create_model("tapr-tiny-timm")
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    encoder = OpenClipEncoder("tapr-tiny-timm", str(tmp_path / "weights.pt"), fit="squash", device="cpu")
    assert (encoder.card.dim, encoder.card.extractor, encoder.card.fit) == (24, "clearclip", "squash")
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 90, 3), dtype=np.uint8))
    found = encoder.encode_images([encoder.prepare(picture)])
    assert found.local_vectors.shape == (1, encoder.card.locals_count, 24)
    with torch.no_grad():
        wanted = network.eval().encode_text(open_clip.tokenize(["a red hat"]), normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode_texts(["a red hat"]), wanted, atol=1e-6)


def test_tokens_are_counted_whatever_the_tokenizer() -> None:
    """SigLIP's tokenizer is one of transformers, which wraps another."""

    class Inner:
        def num_special_tokens_to_add(self) -> int:
            return 1

        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return [7] * (len(text.split()) + add_special_tokens)

    added, count = _token_counts(types.SimpleNamespace(tokenizer=Inner()))
    assert (added, count("a red hat")) == (1, 3)
    added, count = _token_counts(open_clip.get_tokenizer("ViT-B-32"))
    assert (added, count("a red hat")) == (2, 3)
