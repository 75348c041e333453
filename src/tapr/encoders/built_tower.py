"""clip-b16's image tower, ready to run in the arithmetic of one's choice. Its graph is written once, and kept."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders import clip_weights, onnx_graph, onnx_tower, row_product
from tapr.encoders.arithmetic import FLOAT32, ROWS
from tapr.encoders.base import Evidence, unit
from tapr.encoders.clip_weights import TowerWeights
from tapr.encoders.local_tokens import Grid
from tapr.encoders.onnx_file import OnnxFile
from tapr.encoders.onnx_graph import WholeGraph
from tapr.encoders.onnx_session import session
from tapr.encoders.onnx_tower import INPUT, TowerGraph
from tapr.encoders.row_product import Columns, FloatProducts, RowProducts
from tapr.types import Float32
from tapr.utils.files import write_atomically

GRID: Grid = (7, 7)
# of the states after each norm, two per block: the columns that are largest; tools/find_large_columns.py made it
COLUMNS = Path(__file__).parent / "data" / "clip_b16_columns.json"
_MADE_BY = (clip_weights, onnx_graph, onnx_tower, row_product)


class BuiltTower:
    """For any number of threads."""

    def __init__(self, file: Path, extractor: str, arithmetic: str) -> None:
        """`file`: the stored weights. The graph of the default arithmetic is kept beside it, where that can be done."""
        if arithmetic == ROWS:
            self._session = _kept_session(file, extractor)
        else:
            assert arithmetic == FLOAT32, arithmetic
            self._session = session(tower_graph(OnnxFile.read(file), extractor, FLOAT32).model(), finished=True)
        self._outputs = [output.name for output in self._session.get_outputs()]

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Float32, Float32]:
        """(S, S, 3) -> (d,), (M, d)"""
        evidence = self.encode_batch(pixels[None])
        return evidence.global_vectors[0], evidence.local_vectors[0]

    def encode_batch(self, pixels: NDArray[np.uint8]) -> Evidence:
        """(B, S, S, 3) -> (B, d), (B, M, d): a picture's vectors are the same in any batch."""
        global_vectors, local_vectors = self._session.run(self._outputs, {INPUT: pixels})
        return Evidence(unit(global_vectors), unit(local_vectors))


def tower_graph(file: OnnxFile, extractor: str, arithmetic: str, *, beside: bool = False) -> WholeGraph:
    """`beside`: the graph will be stored in the file's folder, and takes its weights from it."""
    graph = WholeGraph(file if beside else None)
    products = RowProducts(graph) if arithmetic == ROWS else FloatProducts(graph)
    for name in TowerGraph(graph, TowerWeights.read(file), products, large_columns()).vectors(extractor, GRID):
        graph.output(name)
    return graph


@cache
def large_columns() -> tuple[Columns, ...]:
    return tuple(map(tuple, json.loads(COLUMNS.read_text())))


def _kept_session(file: Path, extractor: str) -> Any:
    made = hashlib.sha256(COLUMNS.read_bytes())
    for module in _MADE_BY:
        made.update(Path(str(module.__file__)).read_bytes())
    kept = file.with_name(f"{ROWS}-{extractor}-{made.hexdigest()[:16]}.onnx")
    try:
        return session(kept, finished=True)
    except Exception:  # onnxruntime has errors of its own: it is not there yet, or was damaged
        stored = OnnxFile.read(file)
    try:
        for older in file.parent.glob(f"{ROWS}-{extractor}-*.onnx"):
            older.unlink()
        write_atomically(kept, tower_graph(stored, extractor, ROWS, beside=True).model())
    except OSError:  # a folder that is only read, a full disk: all within the graph, which takes longer to load
        return session(tower_graph(stored, extractor, ROWS).model(), finished=True)
    return session(kept, finished=True)
