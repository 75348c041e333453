"""The real encoder, for the tests that need one; and which tests are heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.errors import TaprError

# What `make check` does without, and the tests that need it: files, or the beginnings of tests' names, under tests/.
HEAVY = {
    "torch": (
        "encoders/test_openclip.py",
        "encoders/test_torch_tokens.py",
        "match/test_gpu.py",
        "match/test_gpu_bank.py",
        "match/test_gpu_pack.py",
    ),
    "the onnx package": ("encoders/test_onnx_file.py", "encoders/test_onnx_graph.py", "encoders/test_onnx_tokens.py"),
    "llama.cpp": ("factorize/test_llama_server.py",),
    "a browser": (
        "serve/test_page.py",
        "serve/test_page_reference_weight.py",
        "serve/test_page_troubles.py",
        "serve/test_page_whole_demo.py",
        "serve/test_page_whole_photos.py",
    ),
    "QEMU": ("match/test_aarch64.py",),
    "Sphinx": ("docs/test_site.py",),
    "Ray": ("cluster/test_index.py", "cluster/test_search.py", "cluster/test_storage.py"),
    "schemathesis": ("serve/test_openapi.py",),
    "npm": ("serve/test_typescript.py",),
    "the weights of clip-b16": ("encoders/test_clip_onnx.py",),
    "the package index": (
        "encoders/test_weights.py::test_a_file_comes_out_of_a_wheel_through_pip",
        "encoders/test_weights.py::test_a_wheel_without_the_file",
        "encoders/test_weights.py::test_a_pip_of_the_current_folder_is_not_run",
        "encoders/test_weights.py::test_a_wheel_that_unpacks_to_too_much_is_stopped",
        "encoders/test_weights.py::test_a_file_in_pieces_is_put_together",
        "encoders/test_weights.py::test_a_piece_that_is_missing_is_named",
        "encoders/test_weights.py::test_no_index_to_reach",
        "encoders/test_weights.py::test_two_processes_fetch_once",
        "encoders/test_weights.py::test_a_killed_fetch_leaves_nothing_that_counts",
    ),
    "seconds": (
        "commands/test_eval.py::test_a_whole_run_on_cirr_with_controls",
        "commands/test_eval.py::test_every_method_runs_from_pictures_and_edits_alone_and_is_marked",
        "evaluate/test_datasets.py::test_official",
        "evaluate/test_emoji.py",
        "factorize/test_batch.py::test_a_thousand_calls_with_failures_survive_kill_9_and_resume",
        "factorize/test_tagged.py::test_every_official_validation_edit_gives_a_valid_spec",
        "match/test_kernels.py::test_the_definition_holds",
        "match/test_topk.py::test_a_thousand_random_queries_are_answered_exactly",
        "serve/test_serve_command.py::test_a_killed_server_answers_the_same_when_it_is_back",
    ),
}
HEAVY_FIXTURES = {"clip": "the weights of clip-b16", "image_tower_file": "the weights of clip-b16"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = heavy_reason(item.nodeid.removeprefix("tests/"), getattr(item, "fixturenames", ()))
        if reason:
            item.add_marker(pytest.mark.heavy(reason))


def heavy_reason(name: str, fixtures: Sequence[str] = ()) -> str | None:
    """What a test needs that `make check` does without; None for a quick one."""
    file = name.partition("::")[0]
    for reason, places in HEAVY.items():
        if any(file == place or ("::" in place and name.startswith(place)) for place in places):
            return reason
    return next((HEAVY_FIXTURES[fixture] for fixture in fixtures if fixture in HEAVY_FIXTURES), None)


@pytest.fixture(scope="session")
def image_tower_file() -> Path:
    """The real image tower, from the user's cache or fetched into it."""
    try:
        return fetch(CLIP_B16_IMAGE_TOWER)
    except TaprError as error:
        pytest.skip(f"needs the weights of clip-b16: {error}")


@pytest.fixture(scope="session")
def clip(image_tower_file: Path) -> ClipOnnxEncoder:
    return ClipOnnxEncoder()
