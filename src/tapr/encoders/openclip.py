"""Encoders from open_clip: published checkpoints by tag, or a checkpoint file of one's own. Needs the extra `openclip`.

On a CPU the model runs in float32, and a picture's vectors are the same to 1e-6 whatever it is batched with. On a
GPU it runs in float16: there they agree only to that precision, between batches of other sizes as with the CPU. An
index run encodes in batches of one size, all but the last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import EncoderCard, Evidence, pixels_sentence, unit
from tapr.encoders.extractors import DEFAULT_EXTRACTOR, extractor_of
from tapr.encoders.open_clip_import import import_open_clip
from tapr.encoders.torch_bulk import NOT_NUMBERS, TorchBulk, choose_device
from tapr.errors import BadInput, BadOption, BadWeights, TaprError, UnfitEncoder
from tapr.images.frame import Frame
from tapr.types import Float32

_BATCH = {"cpu": 8, "cuda": 64}  # pictures a pass
_TEXT_BATCH = 256
_CHECKPOINT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors", ".ckpt")
_HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # where a tag names no file


class OpenClipEncoder:
    """`model` as open_clip names it; `pretrained` one of its tags, the path of a checkpoint file, or TAG@PATH."""

    def __init__(
        self,
        model: str,
        pretrained: str,
        *,
        extractor: str = DEFAULT_EXTRACTOR,
        fit: str = "crop",
        template: str = "{}",
        device: str | None = None,
    ) -> None:
        extractor_of(extractor)  # refused before the weights are read
        Frame(1, fit)
        if template.count("{}") != 1:
            raise BadOption(f"the text template {template!r} must contain {{}} once, where the phrase goes", "template")
        open_clip = import_open_clip()
        self._device = choose_device(device)
        source = _find(open_clip, model, pretrained)
        network = _load(open_clip, source)
        digest = _digest(network, source)
        if self._device.type == "cuda":
            network = network.half()
        self._network = network.to(self._device).eval()

        self._tokens = _tokens_of(self._network.visual, extractor)
        self._tokenizer = _tokenizer(open_clip, source.model)
        self._source = source
        size = int(self._network.visual.image_size[0])
        self.frame = Frame(size, fit)
        self.card = EncoderCard(
            name=f"open_clip:{source.model}/{pretrained}",
            weights_sha256=digest,
            dim=int(open_clip.get_model_config(source.model)["embed_dim"]),
            grid=self._tokens.grid,
            extractor=extractor,
            image_size=size,
            fit=fit,
            template=template,
            pixels=pixels_sentence(source.mean, source.std),
        )
        self._in_bulk = TorchBulk(self._vectors, self.card.dim, self.card.locals_count, self._device)

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self.frame.apply(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        import torch

        step = _BATCH[self._device.type]
        global_vectors = np.zeros((len(prepared), self.card.dim), np.float32)
        local_vectors = np.zeros((len(prepared), self.card.locals_count, self.card.dim), np.float32)
        for start in range(0, len(prepared), step):
            batch = slice(start, start + step)
            globals_, locals_ = self._vectors(torch.from_numpy(np.stack(prepared[batch])))
            global_vectors[batch] = _unit_array(globals_)
            local_vectors[batch] = _unit_array(locals_)
        return Evidence(global_vectors, local_vectors)

    @property
    def bulk(self) -> int:
        return self._in_bulk.size if self._device.type == "cuda" else 1

    def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        """Encode pictures, all on the device: what travels back is the fp16 that a bank stores."""
        return self._in_bulk(prepared)

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        import torch

        sentences = [self.card.template.replace("{}", text) for text in texts]
        vectors = np.zeros((len(texts), self.card.dim), np.float32)
        for start in range(0, len(texts), _TEXT_BATCH):
            batch = slice(start, start + _TEXT_BATCH)
            with torch.inference_mode():
                vectors[batch] = _unit_array(
                    self._network.encode_text(self._tokenizer(sentences[batch]).to(self._device))
                )
        return vectors

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)

    def unread(self, text: str) -> str:
        before = self.card.template.partition("{}")[0]
        added, count = _token_counts(self._tokenizer)
        room = self._tokenizer.context_length - added - count(before)
        words = text.split()
        ends = accumulate(count(word) for word in words)
        return " ".join(word for word, end in zip(words, ends, strict=True) if end > room)

    def _vectors(self, pictures: Any) -> tuple[Any, Any]:
        globals_, locals_ = self._tokens(self._pixels(pictures))
        return globals_, locals_

    def _pixels(self, pictures: Any) -> Any:
        """Turn (B, S, S, 3) bytes into (B, 3, S, S) as the tower was trained, on the device, in its precision."""
        import torch

        pixels = pictures.to(self._device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        mean, std = (torch.tensor(x, device=self._device)[:, None, None] for x in (self._source.mean, self._source.std))
        return ((pixels - mean) / std).to(next(self._network.visual.parameters()).dtype)


@dataclass(frozen=True)
class _Source:
    """A model's architecture, its checkpoint file, and the pixel statistics it was trained with."""

    model: str
    file: Path
    mean: tuple[float, ...]  # (3,)
    std: tuple[float, ...]  # (3,)


def _find(open_clip: Any, model: str, pretrained: str) -> _Source:
    _check_model(open_clip, model)
    tags = open_clip.list_pretrained_tags_by_model(model)
    if pretrained in tags:
        settings = open_clip.get_pretrained_cfg(model, pretrained)
        model = trained_as(model, pretrained)
        file = _cached(settings) or _download(open_clip, settings, f"{model}/{pretrained}")
    else:
        tag, path = _tag_and_path(open_clip, model, pretrained)
        file = Path(path).expanduser()
        if not file.is_file():
            if len(file.parts) > 1 or file.suffix in _CHECKPOINT_SUFFIXES or file.exists():
                raise BadWeights(f"there is no checkpoint file {path}")
            raise BadInput(
                f"unknown tag {pretrained!r} for {model}: choose {', '.join(tags) or 'a checkpoint file'}",
                code="unknown_name",
            )
        settings = open_clip.get_pretrained_cfg(model, tag) if tag else _settings_beside(file)
        settings = settings or _settings_of_all(open_clip, model, path)
        model = trained_as(model, pretrained)
    return _Source(
        model,
        file,
        tuple(settings.get("mean") or open_clip.OPENAI_DATASET_MEAN),
        tuple(settings.get("std") or open_clip.OPENAI_DATASET_STD),
    )


def trained_as(model: str, pretrained: str) -> str:
    """Return the model whose activation these weights were trained with: open_clip offers the same tag for both."""
    open_clip = import_open_clip()
    tag = _tag_and_path(open_clip, model, pretrained)[0]
    if not tag:
        return model
    quick = open_clip.get_pretrained_cfg(model, tag).get("quick_gelu")
    return f"{model}-quickgelu" if quick and not open_clip.get_model_config(model).get("quick_gelu") else model


def _tag_and_path(open_clip: Any, model: str, pretrained: str) -> tuple[str, str]:
    """Split TAG, PATH or TAG@PATH; the part that is not there is empty. A path may hold an @ of its own."""
    tags = open_clip.list_pretrained_tags_by_model(model)
    if pretrained in tags:
        return pretrained, ""
    tag, _, path = pretrained.partition("@")
    return (tag, path) if tag in tags else ("", pretrained)


def _settings_of_all(open_clip: Any, model: str, path: str) -> dict[str, Any]:
    """Return the statistics that a model's published checkpoints share; where they differ, the file must say its own.

    ViT-L-14's do: laion2b_s32b_b82k was trained with 0.5, the others with OpenAI's. A wrong choice costs accuracy, and
    nothing would show it.
    """
    tags = open_clip.list_pretrained_tags_by_model(model)
    configs = {tag: open_clip.get_pretrained_cfg(model, tag) for tag in tags}
    kinds = {tuple(tuple(settings.get(name) or ()) for name in ("mean", "std")) for settings in configs.values()}
    if len(kinds) > 1:
        raise BadWeights(
            f"nothing says which pixel statistics {path} was trained with, and those of {model} differ: name the tag "
            f"that it is of, as in open_clip:{model}/{tags[0]}@{path}, or put its open_clip_config.json beside it"
        )
    return dict(next(iter(configs.values()), {}))


def _check_model(open_clip: Any, model: str) -> None:
    """Refuse what cannot work before its weights are fetched."""
    names = open_clip.list_models()
    if model not in names:
        like = get_close_matches(model, names, cutoff=0.5) or ["ViT-B-32", "ViT-L-14"]
        raise BadInput(f"open_clip has no model {model!r}: choose one such as {', '.join(like)}", code="unknown_name")
    config = open_clip.get_model_config(model)
    vision, text = config["vision_cfg"], config["text_cfg"]
    from tapr.encoders.torch_tokens import WORKING_TOWERS

    if "timm_model_name" not in vision:
        plain = not isinstance(vision.get("layers"), list)
        if not plain or vision.get("attentional_pool") or vision.get("pool_type", "tok") != "tok":
            raise UnfitEncoder(f"{model} has another kind of image tower: {WORKING_TOWERS}")
    if "multimodal_cfg" in config or "hf_model_name" in text:
        raise UnfitEncoder(f"{model} has another text tower than CLIP's own: choose one such as ViT-B-32 or ViT-L-14")
    if "hf_tokenizer_name" in text and find_spec("transformers") is None:
        raise BadInput(
            f"{model} reads text with a tokenizer of transformers: pip install transformers", code="missing_extra"
        )


def _tokens_of(visual: Any, extractor: str) -> Any:
    """Return what gives global and local vectors of normalised pixels, by the kind of tower."""
    from tapr.encoders.torch_timm import TimmTokens, is_timm
    from tapr.encoders.torch_tokens import TorchTokens

    return TimmTokens(visual, extractor) if is_timm(visual) else TorchTokens(visual, extractor)


def _tokenizer(open_clip: Any, model: str) -> Any:
    try:
        return open_clip.get_tokenizer(model)
    except Exception as error:  # it is fetched from the model hub where it is not one of open_clip's own
        raise TaprError(
            f"the tokenizer of {model} could not be had ({_first_line(error)})", code="no_weights"
        ) from error


def _token_counts(tokenizer: Any) -> tuple[int, Callable[[str], int]]:
    """Return how many tokens a tokenizer adds to a text, and a function that counts those of a text."""
    inner = getattr(tokenizer, "tokenizer", None)  # of transformers
    if inner is None:
        return 2, lambda text: len(tokenizer.encode(text))  # the start and the end of text
    return inner.num_special_tokens_to_add(), lambda text: len(inner.encode(text, add_special_tokens=False))


def _settings_beside(file: Path) -> dict[str, Any]:
    """Return the pixel statistics of the open_clip_config.json beside a checkpoint file, where there is one."""
    config = file.with_name("open_clip_config.json")
    if not config.is_file():
        return {}
    try:
        return dict(json.loads(config.read_text(encoding="utf-8")).get("preprocess_cfg") or {})
    except (ValueError, AttributeError, TypeError) as error:
        raise BadWeights(f"{config} is not an open_clip configuration: repair or remove it") from error


def _cached(settings: dict[str, Any]) -> Path | None:
    """Return the file of a tag where the hub's cache on this machine has it; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, name = settings["hf_hub"].rpartition("/")
    names = (str(Path(name).with_suffix(".safetensors")), name) if name else _HUB_WEIGHTS
    files = (try_to_load_from_cache(repository, each) for each in names)
    return next((Path(file) for file in files if isinstance(file, str)), None)


def _download(open_clip: Any, settings: dict[str, Any], name: str) -> Path:
    from huggingface_hub import constants, get_session

    instead = "give a checkpoint file as open_clip:<model>/<path>"
    if os.environ.get("TAPR_OFFLINE", "0") not in ("", "0"):
        raise BadInput(
            f"the weights of {name} are not on this machine and TAPR_OFFLINE is set: unset it, or {instead}",
            code="no_weights",
        )
    try:
        get_session().head(constants.ENDPOINT, timeout=10)  # the download itself tries for a minute before it gives up
        return Path(open_clip.download_pretrained(settings))
    except Exception as error:
        reason = f"the weights of {name} could not be fetched from the model hub ({_first_line(error)})"
        raise TaprError(f"{reason}: try again where it can be reached, or {instead}", code="no_weights") from error


def _load(open_clip: Any, source: _Source) -> Any:
    try:
        return open_clip.create_model(source.model, pretrained=str(source.file), precision="fp32", device="cpu")
    except Exception as error:
        if "loading state_dict" in str(error):
            raise BadWeights(f"{source.file} is not a checkpoint of {source.model}: its layers are others") from error
        raise BadWeights(f"{source.file} cannot be read as a checkpoint ({_first_line(error)})") from error


def _digest(network: Any, source: _Source) -> str:
    """Hash the float32 weights by name, then the pixel statistics: the same for .bin and .safetensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).numpy().data)
    digest.update(repr((source.mean, source.std)).encode())
    return digest.hexdigest()


def _unit_array(vectors: Any) -> Float32:
    array = vectors.float().cpu().numpy()
    if not np.isfinite(array).all():
        raise TaprError(NOT_NUMBERS, code="bad_vectors")
    return unit(array)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
