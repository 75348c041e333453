"""The image tower of clip-b16 in every arithmetic and engine that is here: speed, and how true its vectors are.

    PYTHONPATH=src:. python benchmarks/tower.py [--pictures FOLDER] [--count 24] [--threads 1 2] [--only NAME...]

Contestants, all with the same stored weights and the graph of tools/build_image_tower.py:
  rows                activations in 8 bits with a scale per row (the default)
  rows, careful       the same with session.x64quantprecision (what x86 without VNNI needs)
  blocks of N         MatMulNBits of 8 bits, accuracy level 4: a scale per row and N columns
  float32             the same weights in float32
  openvino ...        the float32 graph by OpenVINO, if it is installed: float32 and bf16; int8: with weights of 8 bits,
                      activations quantised by OpenVINO in groups of N
  torch ...           encoders/clip_torch.py on the CPU in float32 and bf16, and on a GPU in float16

One thread: the median of the processor time of one picture, contestants taking turns. More threads: pictures per second
of so many runs side by side (torch and OpenVINO: one batch on so many threads). Then the cosine of global and local
vectors with float32's, mean and least, and the error (RMS) of the similarity of two pictures, beside its spread.
Without --pictures they are noise and drawings: good for speed, but not for the rest.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import unit
from tapr.encoders.clip_weights import INPUT, TowerWeights
from tapr.encoders.onnx_import import onnxruntime
from tapr.encoders.onnx_session import _session, processor_engine
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.images.frame import Frame
from tools.build_image_tower import FloatProducts, Graph, Layer, Products, RowProducts, layer_weights, tower_model

Pixels = NDArray[np.uint8]
Run = Callable[[Pixels], tuple[Any, Any]]  # (B, S, S, 3) -> (B, d), (B, M, d)


class BlockProducts(FloatProducts):
    """MatMulNBits: the stored codes, a scale per channel repeated for every block."""

    def __init__(self, graph: Graph, block: int) -> None:
        super().__init__(graph)
        self._block = block

    def linear(self, rows: str, layer: Layer) -> str:
        inner, outer, weights = layer.inner, layer.outer, self._graph.weights or {}
        signed = weights[f"{layer.name}.codes"].T.astype(np.int16)
        codes = (signed + 128).astype(np.uint8).reshape(outer, -1, self._block)
        scales = np.repeat(weights[f"{layer.name}.scale"][:, None], inner // self._block, axis=1)
        parts = self._graph.constant(codes), self._graph.constant(scales)
        sizes = {"K": inner, "N": outer, "bits": 8, "block_size": self._block, "accuracy_level": 4}
        return self._graph.add("Add", self._graph.own("MatMulNBits", rows, *parts, **sizes),
                               self._graph.weight(f"{layer.name}.bias", 1, layer.outer))  # fmt: skip


class CompressedProducts(FloatProducts):
    """Weights of 8 bits that are multiplied out before use: OpenVINO then quantises the activations by itself."""

    def linear(self, rows: str, layer: Layer) -> str:
        codes = self._graph.weight(f"{layer.name}.codes", 3, layer.inner, layer.outer)
        scale = self._graph.weight(f"{layer.name}.scale", 1, layer.outer)
        weight = self._graph.add("DequantizeLinear", codes, scale, axis=1)
        bias = self._graph.weight(f"{layer.name}.bias", 1, layer.outer)
        return self._graph.add("Add", self._graph.add("MatMul", rows, weight), bias)


class Towers:
    """Each by name, made when it is asked for."""

    def __init__(self, file: Path, extractor: str) -> None:
        self._weights, self._extractor = TowerWeights.read(file), extractor

    def names(self) -> list[str]:
        names = ["rows", "rows, careful", "float32"]
        names += [f"blocks of {size}" for size in (32, 64, 128, 256)]
        try:
            importlib.import_module("openvino"), importlib.import_module("onnx")
            names += ["openvino float32", "openvino bf16", "openvino int8 32", "openvino int8 128"]
        except ImportError:
            print("openvino or onnx is not installed: OpenVINO is not measured")
        try:
            import torch

            names += ["torch float32", "torch bf16", *(["torch float16, GPU"] if torch.cuda.is_available() else [])]
        except ImportError:
            print("torch is not installed: not measured")
        return names

    def make(self, name: str, threads: int = 1) -> Run:
        kind, _, rest = name.partition(" ")
        if kind.startswith("rows"):
            return _onnx(self._model(RowProducts), name.endswith("careful"))
        if kind == "blocks":
            return _onnx(self._model(lambda graph: BlockProducts(graph, int(name.rsplit(maxsplit=1)[-1]))), False)
        if kind == "float32":
            return _onnx(self._model(FloatProducts), False)
        if kind == "openvino":
            return self._openvino(rest, threads)
        return self._torch(rest, threads)

    def _model(self, products: Callable[[Graph], Products]) -> bytes:
        return tower_model(self._extractor, products, layer_weights(self._weights))

    def _openvino(self, how: str, threads: int) -> Run:
        core = importlib.import_module("openvino").Core()
        model = self._model(CompressedProducts if how.startswith("int8") else FloatProducts)
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": 1,
        }
        if how.startswith("int8"):
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = int(how.rsplit(maxsplit=1)[-1])
        elif how == "bf16":
            settings["INFERENCE_PRECISION_HINT"] = "bf16"
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(model)
            file.flush()
            compiled = core.compile_model(core.read_model(file.name), "CPU", settings)

        def run(pixels: Pixels) -> tuple[Any, Any]:
            found = compiled({INPUT: pixels})
            return found[0], found[1]

        return run

    def _torch(self, how: str, threads: int) -> Run:
        import torch

        from tapr.encoders.clip_torch import TorchTower

        kinds = {"float32": torch.float32, "bf16": torch.bfloat16, "float16, GPU": torch.float16}
        device = torch.device("cuda" if how.endswith("GPU") else "cpu")
        torch.set_num_threads(threads)
        tower = TorchTower(self._weights, self._extractor, device, kinds[how])

        def run(pixels: Pixels) -> tuple[Any, Any]:
            torch.set_num_threads(threads)
            return tuple(vectors.float().cpu().numpy() for vectors in tower(torch.from_numpy(pixels)))

        return run


def _onnx(model: bytes, careful: bool) -> Run:
    session = _session(model, careful, True, {})
    names = [output.name for output in session.get_outputs()]
    return lambda pixels: tuple(session.run(names, {INPUT: pixels}))


def pictures(folder: str | None, count: int) -> Pixels:
    frame = Frame(224)
    if folder is None:
        rng = np.random.default_rng(0)
        small = [Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)) for _ in range(count)]
        return np.stack([frame.apply(image.resize((320, 240))) for image in small])
    files = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".png"))
    chosen = [files[int(at)] for at in np.linspace(0, len(files) - 1, count)]
    return np.stack([frame.apply(Image.open(file).convert("RGB")) for file in chosen])


def one_thread(runs: dict[str, Run], pixels: Pixels, rounds: int) -> dict[str, float]:
    """-> ms of processor time per picture; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run(pixels[turn % len(pixels)][None])
            times[name].append(time.process_time() - begin)
    return {name: 1e3 * float(np.median(each[1:])) for name, each in times.items()}


def many_threads(name: str, towers: Towers, run: Run, pixels: Pixels, threads: int, seconds: float) -> float:
    """-> pictures per second"""
    if name.startswith(("torch", "openvino")):
        size = 256 if name.endswith("GPU") else threads
        run, batch = towers.make(name, threads), np.resize(pixels, (size, *pixels.shape[1:]))
        run(batch)
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            run(batch)
            done += len(batch)
        return done / (time.perf_counter() - begin)
    end = time.perf_counter() + seconds

    def work(start: int) -> int:
        done = 0
        while time.perf_counter() < end:
            run(pixels[(start + done) % len(pixels)][None])
            done += 1
        return done

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, range(threads)))
    return done / (time.perf_counter() - begin)


def truth(runs: dict[str, Run], pixels: Pixels) -> dict[str, list[str]]:
    """Cosines with float32 and the error of similarities, of each."""
    found = {name: [unit(np.concatenate(part)) for part in zip(*(run(one[None]) for one in pixels), strict=True)]
             for name, run in runs.items()}  # fmt: skip
    right = found["float32"]
    pairs = np.triu_indices(len(pixels), 1)
    similar = (right[0] @ right[0].T)[pairs]
    print(f"spread of the similarity of two pictures: {similar.std():.3f}")
    rows = {}
    for name, (globals_, locals_) in found.items():
        cosines = [(globals_ * right[0]).sum(-1), (locals_ * right[1]).sum(-1)]
        error = np.sqrt(np.mean(((globals_ @ globals_.T)[pairs] - similar) ** 2))
        rows[name] = [*(f"{each.mean():.5f} ({each.min():.4f})" for each in cosines), f"{error:.4f}"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, nargs="*", default=[os.cpu_count() or 1])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--extractor", default="clearclip")
    asked = parser.parse_args()
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    known = [
        flag for flag in ("amx_int8", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512f", "avx2") if flag in flags
    ]
    careful = " with the careful option" if processor_engine().careful else ""
    print(f"{platform.machine()} {' '.join(known)}, {os.cpu_count()} processors, onnxruntime {onnxruntime.__version__}"
          f"; the table says: {processor_engine().arithmetic}{careful}")  # fmt: skip
    pixels = pictures(asked.pictures, asked.count)
    towers = Towers(fetch(CLIP_B16_IMAGE_TOWER, print), asked.extractor)
    names = [name for name in towers.names() if not asked.only or name in asked.only or name == "float32"]
    runs: dict[str, Run] = {}
    for name in names:
        try:
            runs[name] = towers.make(name)
            runs[name](pixels[:1])
        except Exception as error:
            print(f"{name}: not measured ({type(error).__name__}: {str(error).splitlines()[0][:120]})")
            runs.pop(name, None)
    times = one_thread(runs, pixels, asked.rounds)
    columns = {"1 thread, ms": {name: f"{value:.0f}" for name, value in times.items()}}
    for threads in asked.threads:
        rates = {name: many_threads(name, towers, run, pixels, threads, asked.seconds) for name, run in runs.items()}
        columns[f"{threads} threads, per s"] = {name: f"{value:.1f}" for name, value in rates.items()}
    rows = truth(runs, pixels)
    heads = ["", *columns, "global cosine (least)", "local cosine (least)", "error"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name in runs:
        print("| " + " | ".join([name, *(column[name] for column in columns.values()), *rows[name]]) + " |")


if __name__ == "__main__":
    main()
