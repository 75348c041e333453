"""Sessions of onnxruntime, and whether this processor multiplies bytes exactly."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.arithmetic import PROCESSORS, Engine
from tapr.encoders.onnx_graph import WholeGraph
from tapr.encoders.onnx_import import onnxruntime


def session(model: bytes | Path, *, finished: bool = False) -> Any:
    """One thread per run: many runs side by side finish sooner than one run on many threads.

    `finished`: the graph is written as it is to run, and nothing is gained by looking for better ones.
    """
    return _session(model, processor_engine().careful, finished)


@cache
def processor_engine() -> Engine:
    """The row of the table that this processor is in."""
    return PROCESSORS["exact" if _multiplies_exactly() else "saturating"]


def _multiplies_exactly() -> bool:
    """On x86 without VNNI the fast way adds two products of bytes in 16 bits, and cuts off what does not fit."""
    graph, inner = WholeGraph(), 64
    graph.input_bytes("x", inner)
    weights = graph.bytes_constant(np.full((inner, 16), 127, np.int8))
    name = graph.output(graph.add("Cast", graph.add("MatMulInteger", "x", weights), to=1))
    (found,) = _session(graph.model(), False, True).run([name], {"x": np.full((4, inner), 255, np.uint8)})
    return bool((found == inner * 255 * 127).all())


def _session(model: bytes | Path, careful: bool, finished: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if careful:  # is done by one of the steps that look for a better graph, so none of them is left out
        options.add_session_config_entry("session.x64quantprecision", "1")
    elif finished:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
