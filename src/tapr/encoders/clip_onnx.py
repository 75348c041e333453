"""`clip-b16`, the offline default: OpenAI's CLIP ViT-B/16 image tower and this project's text tower on onnxruntime.

docs/models.md says where the parts come from. The image tower quantises its activations with one scale per tensor, so
a batch would mix its pictures: each picture, and each text, is a run of its own, and runs go side by side on threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer

from tapr.encoders.base import EncoderCard, Evidence, pixels_sentence, unit
from tapr.encoders.extractors import DEFAULT_EXTRACTOR, extractor_of
from tapr.encoders.frame import Frame
from tapr.encoders.local_tokens import LastBlock, Linear, Norm
from tapr.encoders.model_files import CLIP_B16_TEXT_TOWER, CLIP_B16_TOKENIZER
from tapr.encoders.onnx_file import OnnxFile
from tapr.encoders.onnx_graph import GraphPiece
from tapr.encoders.onnx_import import onnxruntime
from tapr.encoders.onnx_tokens import OnnxTokens
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, Say, fetch, quiet
from tapr.errors import BadInput
from tapr.types import Float32
from tapr.utils.threads import thread_count

NAME = "clip-b16"
DIM, IMAGE_SIZE, MAX_TOKENS = 512, 224, 48
NATIVE_GRID, GRID = (14, 14), (7, 7)

_HEADS = 12
_PIXEL_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)  # CLIP's own
_PIXEL_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
_BLOCK = "vision_model.encoder.layers.11"  # as initialisers are named
_BLOCK_NODES = "/vision_model/encoder/layers.11"  # as nodes are
BLOCK_INPUT = "/vision_model/encoder/layers.10/Add_1"
_BLOCK_OUTPUT = f"{_BLOCK_NODES}/Add_1"

Item = TypeVar("Item")
Result = TypeVar("Result")


class ClipOnnxEncoder:
    """Towers are loaded when first needed, so that a search by text alone never loads the image tower."""

    def __init__(
        self,
        *,
        extractor: str = DEFAULT_EXTRACTOR,
        fit: str = "crop",
        template: str = "{}",
        say: Say = quiet,
        threads: int | None = None,
    ) -> None:
        self._frame = Frame(IMAGE_SIZE, fit)
        if template.count("{}") != 1:
            raise BadInput(f"the text template {template!r} must contain {{}} once, where the phrase goes")
        self._threads = threads or thread_count()
        self._image_file = fetch(CLIP_B16_IMAGE_TOWER, say)
        self.card = EncoderCard(
            name=NAME,
            weights_sha256=weights_sha256(),
            dim=DIM,
            grid=GRID,
            extractor=extractor_of(extractor).name,
            image_size=IMAGE_SIZE,
            fit=fit,
            template=template,
            pixels=pixels_sentence(_PIXEL_MEAN.tolist(), _PIXEL_STD.tolist()),
        )

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self._frame.apply(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        if not len(prepared):
            return Evidence(np.zeros((0, DIM), np.float32), np.zeros((0, self.card.locals_count, DIM), np.float32))
        pairs = self._side_by_side(self._image_tower.encode, prepared)
        return Evidence(np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs]))

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        if not len(texts):
            return np.zeros((0, DIM), np.float32)
        return np.stack(self._side_by_side(self._text_tower.encode, map(self._sentence, texts)))

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self.encode_texts(texts)

    def unread(self, text: str) -> str:
        read = self._text_tower.read_characters(self._sentence(text))
        return text[max(0, read - self.card.template.index("{}")) :]

    def _sentence(self, text: str) -> str:
        return self.card.template.replace("{}", text)

    def _side_by_side(self, run: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        items = list(items)
        workers = min(self._threads, len(items))
        if workers == 1:
            return [run(item) for item in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(run, items))

    @cached_property
    def _image_tower(self) -> ImageTower:
        return ImageTower(OnnxFile.read(self._image_file), self.card.extractor)

    @cached_property
    def _text_tower(self) -> TextTower:
        return TextTower(CLIP_B16_TEXT_TOWER.path, CLIP_B16_TOKENIZER.path)


class ImageTower:
    """One picture at a time through the graph, to which the extractor is joined.

    An extractor that is the block as trained reads what the graph itself computes; every other one starts from the
    last block's input.
    """

    def __init__(self, file: OnnxFile, extractor: str) -> None:
        piece = GraphPiece()
        tokens = OnnxTokens(piece, last_block(file), NATIVE_GRID, GRID)
        if extractor_of(extractor).as_trained:
            locals_ = tokens.from_block_output(file.node(_BLOCK_OUTPUT).outputs[0])
        else:
            locals_ = tokens.from_block_input(extractor, file.node(BLOCK_INPUT).outputs[0])
        self._outputs = ["image_embeds", piece.output(locals_)]
        self._session = session(piece.joined_to(file.data))

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Float32, Float32]:
        """(S, S, 3) -> (d,), (M, d)."""
        embeddings, locals_ = self._session.run(self._outputs, {"pixel_values": planes(pixels)})
        return unit(embeddings[0]), unit(locals_)


class TextTower:
    """One sentence at a time, at most MAX_TOKENS tokens of it."""

    def __init__(self, tower: Path, tokenizer: Path) -> None:
        self._session = session(tower.read_bytes())
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()  # the file asks for padding, which this graph has no mask for
        self._tokenizer.no_truncation()  # done here, to know what is left out

    def encode(self, sentence: str) -> Float32:
        ids = self._tokenizer.encode(sentence).ids
        if len(ids) > MAX_TOKENS:
            ids = [*ids[: MAX_TOKENS - 1], ids[-1]]  # the last is the end mark
        (vectors,) = self._session.run(["text_embeds"], {"input_ids": np.array([ids], np.int64)})
        return unit(vectors[0])

    def read_characters(self, sentence: str) -> int:
        """How many of the sentence's characters the tower reads."""
        offsets = self._tokenizer.encode(sentence).offsets
        return len(sentence) if len(offsets) <= MAX_TOKENS else int(offsets[MAX_TOKENS - 1][0])


def last_block(file: OnnxFile) -> LastBlock:
    """The weights of everything after the last block's input, as float32."""

    def norm(name: str) -> Norm:
        return Norm(file.initialiser(f"{name}.weight"), file.initialiser(f"{name}.bias"))

    def linear(part: str) -> Linear:
        weight = file.matrix(f"{_BLOCK_NODES}/{part.replace('.', '/')}/MatMul_quant")
        return Linear(weight, file.initialiser(f"{_BLOCK}.{part}.bias"))

    return LastBlock(
        ln1=norm(f"{_BLOCK}.layer_norm1"),
        query=linear("self_attn.q_proj"),
        key=linear("self_attn.k_proj"),
        value=linear("self_attn.v_proj"),
        out=linear("self_attn.out_proj"),
        ln2=norm(f"{_BLOCK}.layer_norm2"),
        fc1=linear("mlp.fc1"),
        fc2=linear("mlp.fc2"),
        ln_post=norm("vision_model.post_layernorm"),
        projection=file.matrix("/visual_projection/MatMul_quant"),
        heads=_HEADS,
        activation="quick_gelu",
    )


def planes(pixels: NDArray[np.uint8]) -> Float32:
    """(S, S, 3) -> (1, 3, S, S), normalised as CLIP was trained."""
    scaled = pixels.astype(np.float32)
    scaled /= 255
    scaled -= _PIXEL_MEAN
    scaled /= _PIXEL_STD
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))[None]


def weights_sha256() -> str:
    """sha256 over the two towers' sha256 hex digests, image tower first, written one after the other."""
    return hashlib.sha256((CLIP_B16_IMAGE_TOWER.sha256 + CLIP_B16_TEXT_TOWER.sha256).encode()).hexdigest()


def session(model: bytes) -> Any:
    """One thread per run: many runs side by side finish sooner than one run on many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # on CPUs without VNNI the fast way adds 8-bit products in 16 bits and overflows: this asks for the exact way
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
