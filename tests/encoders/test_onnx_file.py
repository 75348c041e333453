"""onnx_file: weights and outputs of small hand-made models and of the real image tower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapr.encoders.onnx_file import OnnxFile, dequantise
from tapr.errors import TaprError

onnx = pytest.importorskip("onnx", reason="models are made with the onnx package")


def small_model() -> bytes:
    """y = x @ (codes - zero_point) * scale, and z = y + y which is no output."""
    helper, tensor = onnx.helper, onnx.TensorProto
    codes = np.array([[1, -2], [3, 4], [-128, 127]], np.int8)
    initialisers = [
        onnx.numpy_helper.from_array(codes, "w_quantized"),
        helper.make_tensor("w_scale", tensor.FLOAT, [2], [0.5, 0.25]),  # stored typed, not raw
        helper.make_tensor("w_zero_point", tensor.INT8, [2], [-3, 2]),
        onnx.numpy_helper.from_array(np.array([5, 300, -7], np.int64), "longs"),
        onnx.numpy_helper.from_array(np.ones((2, 2), np.float64), "doubles"),
    ]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], name="quantise"),
        helper.make_node("MatMulInteger", ["xq", "w_quantized", "xz", "w_zero_point"], ["yi"], name="product"),
        helper.make_node("Cast", ["yi"], ["yf"], name="cast", to=tensor.FLOAT),
        helper.make_node("Mul", ["xs", "w_scale"], ["s"], name="scales"),
        helper.make_node("Mul", ["yf", "s"], ["y"], name="scaled"),
        helper.make_node("Add", ["y", "y"], ["z"], name="twice"),
        helper.make_node("Relu", ["z"], ["out"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", tensor.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("out", tensor.FLOAT, ["n", 2])],
        initialisers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_nodes_are_found_by_name() -> None:
    node = OnnxFile(small_model()).node("product")
    assert node.operator == "MatMulInteger"
    assert node.inputs == ("xq", "w_quantized", "xz", "w_zero_point")
    assert node.outputs == ("yi",)


def test_initialisers_raw_and_typed() -> None:
    file = OnnxFile(small_model())
    np.testing.assert_array_equal(file.initialiser("w_quantized"), [[1, -2], [3, 4], [-128, 127]])
    np.testing.assert_array_equal(file.initialiser("w_scale"), np.array([0.5, 0.25], np.float32))
    np.testing.assert_array_equal(file.initialiser("w_zero_point"), np.array([-3, 2], np.int8))
    np.testing.assert_array_equal(file.initialiser("longs"), [5, 300, -7])


def test_a_raw_initialiser_is_a_view_of_the_file() -> None:
    data = small_model()
    view = OnnxFile(data).initialiser("w_quantized")
    assert np.shares_memory(view, np.frombuffer(data, np.int8))


def test_a_quantised_weight_is_multiplied_out() -> None:
    expected = [[(1 + 3) * 0.5, (-2 - 2) * 0.25], [(3 + 3) * 0.5, (4 - 2) * 0.25], [-125 * 0.5, 125 * 0.25]]
    np.testing.assert_array_equal(OnnxFile(small_model()).matrix("product"), np.array(expected, np.float32))


def test_dequantise_unsigned_codes_with_one_zero_point() -> None:
    codes, zero_point, scale = np.array([[0, 255]], np.uint8), np.array(128, np.uint8), np.array(2, np.float32)
    np.testing.assert_array_equal(dequantise(codes, zero_point, scale), [[-256, 254]])


def test_what_is_missing_is_named() -> None:
    file = OnnxFile(small_model(), "small.onnx")
    with pytest.raises(TaprError, match=r"small\.onnx has no node 'block'"):
        file.node("block")
    with pytest.raises(TaprError, match=r"small\.onnx has no initialiser 'bias'"):
        file.initialiser("bias")
    with pytest.raises(TaprError, match="'doubles' in a number format"):
        file.initialiser("doubles")


@pytest.mark.parametrize("data", [b"not a model at all", small_model()[:-20], b"\xff" * 40], ids=["text", "cut", "ff"])
def test_a_damaged_file_is_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(TaprError, match="damaged or no ONNX file"):
        OnnxFile(data).node("product")


def test_the_real_tower_reads_as_the_onnx_package_reads_it(image_tower_file: Path) -> None:
    file = OnnxFile.read(image_tower_file)
    model = onnx.load(str(image_tower_file))
    arrays = {tensor.name: tensor for tensor in model.graph.initializer}
    name = "/vision_model/encoder/layers.11/self_attn/q_proj/MatMul_quant"
    node = next(node for node in model.graph.node if node.name == name)
    assert file.node(name).inputs == tuple(node.input)
    codes, zero = (onnx.numpy_helper.to_array(arrays[node.input[at]]) for at in (1, 3))
    scale = onnx.numpy_helper.to_array(arrays[node.input[1].replace("_quantized", "_scale")])
    expected = (codes.astype(np.float64) - zero) * scale
    np.testing.assert_allclose(file.matrix(name), expected, rtol=1e-6)
