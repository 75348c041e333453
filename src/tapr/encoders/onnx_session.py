"""Sessions of onnxruntime, and whether this processor multiplies bytes exactly."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.arithmetic import PROCESSORS, Runtime
from tapr.encoders.onnx_import import onnxruntime

PROBE = Path(__file__).parent / "data" / "product_of_bytes.onnx"  # tools/build_image_tower.py made it
Weights = dict[str, NDArray[Any]]


def session(model: bytes | Path, *, finished: bool = False, weights: Weights | None = None) -> Any:
    """Load a graph with one thread per run: many runs side by side finish sooner than one run on many threads.

    `finished`: the graph is written as it is to run, and nothing is gained by looking for better ones. `weights` are
    arrays that the graph only names.
    """
    return _session(model, processor_engine().careful, finished, weights or {})


@cache
def processor_engine() -> Runtime:
    """Return the row of the table that this processor is in."""
    return PROCESSORS["exact" if _multiplies_exactly() else "saturating"]


def _multiplies_exactly() -> bool:
    """Multiply large bytes: x86 without VNNI adds two products in 16 bits, and cuts off what does not fit."""
    probe = _session(PROBE, False, True, {})
    (products,) = probe.run(None, {"x": np.full((4, 64), 255, np.uint8)})
    return bool((products == 64 * 255 * 127).all())


def _session(model: bytes | Path, careful: bool, finished: bool, weights: Weights) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if careful:  # is done by one of the steps that look for a better graph, so none of them is left out
        options.add_session_config_entry("session.x64quantprecision", "1")
    elif finished:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if weights:
        values = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.require(array, None, ("C", "A"))) for array in weights.values()
        ]
        options.add_external_initializers(list(weights), values)
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
