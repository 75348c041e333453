"""open_clip's image tower: the local vectors equal the NumPy definition, the global ones the tower's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapr.encoders.local_tokens import EXTRACTORS, LastBlock, Linear, Norm, local_vectors

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("huggingface_hub", reason="open_clip is not installed")

from tapr.encoders.open_clip_import import import_open_clip  # noqa: E402
from tapr.encoders.torch_tokens import TorchTokens, check_tower  # noqa: E402
from tests.refusals import refused  # noqa: E402

transformer = import_open_clip().transformer


def some_tower(act: Any = torch.nn.GELU, **options: Any) -> Any:
    """A ViT of two blocks over 10 x 10 patches, all its weights random, norms and biases too."""
    torch.manual_seed(3)
    tower = transformer.VisionTransformer(
        image_size=40, patch_size=4, width=32, layers=2, heads=4, mlp_ratio=4.0, output_dim=12, act_layer=act, **options
    )
    with torch.no_grad():
        for weights in tower.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return tower.eval()


def some_pixels(count: int = 3) -> Any:
    return torch.randn(count, 3, 40, 40, generator=torch.Generator().manual_seed(5))


def numpy_block(tower: Any) -> LastBlock:
    """The tower's last block as the definition takes it; a LayerScale is folded into the layer before it."""

    def array(weights: Any) -> Any:
        return weights.detach().numpy()

    def norm(layer: Any) -> Norm:
        return Norm(array(layer.weight), array(layer.bias), layer.eps)

    def linear(weight: Any, bias: Any, scale: Any = None) -> Linear:
        gamma = scale.gamma if hasattr(scale, "gamma") else torch.ones(len(bias))
        return Linear(array((weight * gamma[:, None]).T), array(bias * gamma))

    block = tower.transformer.resblocks[-1]
    packed = zip(block.attn.in_proj_weight.chunk(3), block.attn.in_proj_bias.chunk(3), strict=True)
    query, key, value = (linear(weight, bias) for weight, bias in packed)
    out, fc1, fc2 = block.attn.out_proj, block.mlp.c_fc, block.mlp.c_proj
    return LastBlock(
        norm(block.ln_1), query, key, value, linear(out.weight, out.bias, block.ls_1), norm(block.ln_2),
        linear(fc1.weight, fc1.bias), linear(fc2.weight, fc2.bias, block.ls_2), norm(tower.ln_post),
        array(tower.proj), block.attn.num_heads, "gelu" if isinstance(block.mlp.gelu, torch.nn.GELU) else "quick_gelu",
    )  # fmt: skip


def last_input(tower: Any, pixels: Any) -> Any:
    """The tower's own steps written out, up to its last block: (B, 1 + P, D)."""
    with torch.no_grad():
        patches = tower.conv1(pixels).flatten(2).transpose(1, 2)
        cls = tower.class_embedding.expand(len(pixels), 1, -1)
        x = tower.ln_pre(torch.cat([cls, patches], dim=1) + tower.positional_embedding)
        for block in tower.transformer.resblocks[:-1]:
            x = block(x)
    return x


@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize(
    "options",
    [{}, {"act": transformer.QuickGELU}, {"ls_init_value": 0.5}, {"no_ln_pre": True}],
    ids=["gelu", "quick_gelu", "layer_scale", "no_ln_pre"],
)
def test_local_vectors_equal_the_numpy_definition(extractor: str, options: dict[str, Any]) -> None:
    tower, pixels = some_tower(**options), some_pixels()
    tokens = TorchTokens(tower, extractor)
    _, found = tokens(pixels)
    block = numpy_block(tower)
    wanted = [local_vectors(extractor, x.numpy(), block, (10, 10), (5, 5)) for x in last_input(tower, pixels)]
    assert tokens.grid == (5, 5)
    np.testing.assert_allclose(found.numpy(), np.stack(wanted), atol=2e-6)


def test_tokens_are_the_last_layer_normed_projected_pooled() -> None:
    tower, pixels = some_tower(), some_pixels()
    with torch.no_grad():
        x = tower.transformer.resblocks[-1](last_input(tower, pixels))
        projected = tower.ln_post(x)[:, 1:] @ tower.proj  # (B, P, d)
    cells = projected.reshape(3, 5, 2, 5, 2, 12).mean(dim=(2, 4)).reshape(3, 25, 12)
    _, found = TorchTokens(tower, "tokens")(pixels)
    np.testing.assert_allclose(found.numpy(), torch.nn.functional.normalize(cells, dim=-1).numpy(), atol=1e-6)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_tower_itself_is_left_as_it_was(extractor: str) -> None:
    tower, pixels = some_tower(), some_pixels()
    with torch.no_grad():
        before = tower(pixels)
    found, _ = TorchTokens(tower, extractor)(pixels)
    assert torch.equal(found, before)
    assert not tower.transformer.resblocks[-1]._forward_hooks


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_half_precision_is_near(extractor: str) -> None:
    """The dtypes a GPU runs in, on the CPU."""
    _, exact = TorchTokens(some_tower(), extractor)(some_pixels())
    _, near = TorchTokens(some_tower().half(), extractor)(some_pixels().half())
    assert near.dtype == torch.float32
    np.testing.assert_allclose(near.numpy(), exact.numpy(), atol=5e-3)


def test_the_activation_matters() -> None:
    pixels = some_pixels()
    _, gelu = TorchTokens(some_tower(), "tokens")(pixels)
    _, quick = TorchTokens(some_tower(transformer.QuickGELU), "tokens")(pixels)
    assert (gelu - quick).abs().max() > 1e-3


def test_blocks_that_see_tokens_before_the_batch() -> None:
    """Its blocks saw (1 + P, B, D); today's does so when `batch_first` is off."""
    tower, pixels = some_tower(), some_pixels()
    _, wanted = TorchTokens(tower, "clearclip")(pixels)
    for block in tower.transformer.resblocks:
        block.attn.batch_first = False
    tower.transformer.batch_first = False
    _, found = TorchTokens(tower, "clearclip")(pixels)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)


def test_towers_that_cannot_be_read_are_refused() -> None:
    with refused("unfit_encoder", "Linear"):
        check_tower(torch.nn.Linear(1, 1))
    with refused("unfit_encoder", "CLS"):
        TorchTokens(some_tower(pool_type="avg"), "tokens")
    with refused("unfit_encoder", "CLS"):
        TorchTokens(some_tower(attentional_pool=True, attn_pooler_heads=4), "tokens")
    with refused("unfit_encoder", "attention"):
        TorchTokens(some_tower(qk_norm=True), "value")
    with refused("bad_option", "'dino'", option="extractor"):
        TorchTokens(some_tower(), "dino")
