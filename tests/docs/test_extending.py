"""The worked examples of docs/extending.md, put into a copy of the package as the page says, and used."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapr
from tapr.score.definition import score as defined
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.plan import full_search
from tapr.search.prune import Pruning, Stages
from tapr.search.stages.job import Job
from tapr.search.topk import answer_of, top_k
from tests.package_copy import insert_after, linked_copy
from tests.pictures import SOME_FLAGS, flag, write_flags
from tests.search.banks import make_query, random_bank

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def examples() -> dict[str, str]:
    """Path under src/tapr (and where in it) -> code."""
    blocks = re.findall(r"^```python\n# src/tapr/(.*?)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("extended")
    package = linked_copy(root)
    found = examples()
    row = found.pop("encoders/extractors.py, in EXTRACTORS").rstrip("\n")
    last = '        Extractor("value", (), False, False, origin="the same value path by itself"),'
    insert_after(package, "encoders/extractors.py", last, f"        {row}")
    for name, code in found.items():
        assert not (package / name).exists()
        (package / name).write_text(code, encoding="utf-8")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for colours in (("black",), ("white",), ("black", "white"), ("white", "black"), ("red",)):
        flag(*colours).save(tmp_path / f"{'-'.join(colours)}.png")
    rows = ("black.png,bright,white.png", "white.png,dark,black.png", "red.png,bright,white.png")
    (tmp_path / "pairs.csv").write_text("\n".join(["reference,edit,target", *rows]) + "\n")
    return tmp_path


def answer(copy: Path, folder: Path, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(copy), "TAPR_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "tapr.cli.main", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_there_is_one_example_of_each() -> None:
    folders = {"encoders", "methods", "evaluate/datasets", "factorize", "encoders/models", "search/stages"}
    assert {str(Path(name.partition(",")[0]).parent) for name in examples()} == folders
    assert len(examples()) == 7  # of encoders two: a tower, and a multimodal embedder


def test_method_dataset_factorizer_and_encoder_together(copy: Path, folder: Path) -> None:
    asked = ("eval", "pairs", "--data", ".", "--encoder", "brightness", "--factorizer", "commas")
    found = answer(copy, folder, *asked, "--no-page", "--method", "edit-twice", "--method", "tapr", "--out", "run")
    methods = found["metrics"]["methods"]
    assert methods["edit-twice"]["label"] == "Image + 2 edit"
    assert methods["edit-twice"]["R@1"] > 60  # of three; "dark" of a white picture finds the red one first
    assert "commas/1" in found["config"]["records"]["origin"]
    assert "Image + 2 edit, decided here: all of it" in (folder / "run" / "tables.md").read_text()


def test_a_multimodal_embedder(copy: Path, folder: Path) -> None:
    """One vector per picture, and one for a picture and an edit together."""
    asked = ("eval", "pairs", "--data", ".", "--encoder", "light", "--factorizer", "commas", "--no-page")
    found = answer(copy, folder, *asked, "--method", "embedder", "--method", "tapr", "--out", "run-light")
    assert found["metrics"]["methods"]["embedder"]["R@1"] == 100
    assert found["config"]["encoder"]["grid"] == [1, 1]
    assert "tapr" in found["metrics"]["methods"]


def test_a_search_by_the_method(copy: Path, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy), "TAPR_HOME": str(folder / "home")}
    index = [
        sys.executable,
        "-m",
        "tapr.cli.main",
        "index",
        ".",
        "-g",
        "bank",
        "--encoder",
        "brightness",
        "--no-captions",
    ]
    subprocess.run(index, check=True, env=environment, cwd=folder, capture_output=True)
    found = answer(copy, folder, "search", "-g", "bank", "black.png", "bright", "--method", "edit-twice")
    assert found["hits"][0]["id"].endswith("white.png")
    assert found["method"] == "edit-twice"


def test_the_test_of_the_method(copy: Path, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n# tests/methods/test_edit_twice\.py\n(.*?)^```", page, re.M | re.S)
    folder = tmp_path / "tests" / "methods"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()  # so that no other package called tests is found first
    shutil.copy(PAGE.parents[1] / "tests" / "methods" / "small.py", folder)
    (folder / "test_edit_twice.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(tmp_path)])}
    run = "from tests.methods.test_edit_twice import test_the_edit_counts_twice as test; test()"
    subprocess.run([sys.executable, "-c", run], check=True, env=environment)


def test_the_stage_bounds_scores_and_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target_alone.py").write_text(examples()["search/stages/target_alone.py"])
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("target_alone")
    rng = np.random.default_rng(1)
    bank, queries = MemoryBank.of(*random_bank(rng, 300, 5, 32)), [make_query(rng, 4, 32) for _ in range(3)]
    job = Job.of(queries, bank, NumpyKernel())
    stage, exact = made.TargetAlone(job), full_search(job, 5).exact
    for number, query in enumerate(queries):
        scores = defined(query, bank.block.global_vectors, bank.block.decoded())
        some = np.array([3, 7, 299])
        assert (stage.bounds([number], None, None).numbers[0] >= scores).all()
        assert (stage.bounds([number], some, None).numbers[0] >= scores[some]).all()
    search = Pruning(Stages(exact, wide=[stage], leaders=5), 3, 300, 5)
    search.score_leaders()
    search.finish()
    for number, ledger in enumerate(search.ledgers):
        found = answer_of(job, number, 5, ledger)
        assert found.positions.tolist() == top_k(queries[number], bank, 5, job.kernel).positions.tolist()


def test_the_extractor_is_known_and_computes(copy: Path) -> None:
    code = """
import numpy as np
from tapr.encoders.local_tokens import EXTRACTORS, LastBlock, Linear, Norm, local_vectors
rng = np.random.default_rng(0)
array = lambda *shape: rng.standard_normal(shape).astype(np.float32)
linear = lambda a, b: Linear(array(a, b), array(b))
norm = lambda: Norm(array(8), array(8))
block = LastBlock(norm(), *(linear(8, 8) for _ in range(4)), norm(), linear(8, 32), linear(32, 8), norm(), array(8, 4), 2, "gelu")
hidden = array(7, 8)
made = {name: local_vectors(name, hidden, block, (2, 3), (2, 3)) for name in EXTRACTORS}
new = made.pop("trained-patches")
assert new.shape == (6, 4) and all(np.abs(new - other).max() > 0.01 for other in made.values())
"""  # noqa: E501
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


KERNEL_LINES = {  # file of search/kernels/native -> after which line the page's line goes
    "processor.h": "bool has_avx2();",
    "processor.cpp": "  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;\n}",
    "job.h": "extern const Isa avx2, avx512, avx512vnni;",
    "sweep.cpp": "    &avx512, &avx2,",
}
KERNEL_MAIN = """
#include "processor.h"
#include "job.h"
int main() { return tapr::avx.supported == tapr::has_avx ? 0 : 1; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("g++"), reason="needs g++ on x86-64")
@pytest.mark.toolchain
@pytest.mark.smoke
def test_the_instruction_set_compiles(tmp_path: Path) -> None:
    """With the lines of the page alone. Its scores are not computed: building every source takes minutes."""
    native = Path(tapr.__file__).parent / "search" / "kernels" / "native"
    page = PAGE.read_text(encoding="utf-8")
    for source in (*native.glob("*.h"), *native.glob("*.inc"), *native.glob("*.cpp")):
        shutil.copy(source, tmp_path)
    (code,) = re.findall(r"^```cpp\n// src/tapr/search/kernels/native/avx\.cpp\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "avx.cpp").write_text(code, encoding="utf-8")
    for name, after in KERNEL_LINES.items():
        (added,) = re.findall(rf"^src/tapr/search/kernels/native/{re.escape(name)}\b.*\n(.*\n)", page, re.M)
        insert_after(tmp_path, name, after, added)
    (tmp_path / "main.cpp").write_text(KERNEL_MAIN)
    compiler = ["g++", "-std=c++17", "-w"]
    subprocess.run([*compiler, "-fsyntax-only", "sweep.cpp"], check=True, cwd=tmp_path)
    subprocess.run([*compiler, "main.cpp", "avx.cpp", "processor.cpp", "-o", "main"], check=True, cwd=tmp_path)
    subprocess.run([tmp_path / "main"], check=True)


def test_the_counts_are_those_of_the_copy(copy: Path) -> None:
    """One file each: what the copy holds beyond the package is the five files of the page."""
    package = Path(tapr.__file__).parent
    own = [path for path in (copy / "tapr").rglob("*.py") if not path.is_symlink()]
    changed = {str(path.relative_to(copy / "tapr")) for path in own}
    assert changed == {name.partition(",")[0] for name in examples()}
    assert all((package / name).exists() == (name == "encoders/extractors.py") for name in changed)


INDEX_OPTION_LINES = [
    ("index/options.py", '    wait: float | None = option(None, "Seconds to wait for another writer to end.")'),
    (
        "index/run.py",
        "        plan = make_plan(found, entries, facts, try_failed_again=again, rehash=self._options.rehash)",
    ),
]
OPTION_LINES = [  # after which line each part of the page's example goes
    (
        "options.py",
        '    threshold: float | None = _option(None, "Leave out pictures whose score is below this.", '
        'Traits(saved="apart"))',
    ),
    ("options.py", "        parts = [self.where]"),
    ("search/searcher.py", "    threshold: float | None = None,"),
]
OPTION_USE = """
import json, sys
import tapr
from starlette.testclient import TestClient
from tapr.client import Client
from tapr.server.app import create_app
from click.testing import CliRunner
from tapr.cli.main import app

folder = sys.argv[1]
gallery = tapr.Gallery.build("bank", folder, "fake")
wanted = [hit.id for hit in tapr.search(gallery, text="red", min_width=50).hits]
assert wanted == ["wide.png"], wanted
best = tapr.search(gallery, text="blue", min_width=50, k=1).hits
assert [hit.id for hit in best] == wanted, "the best of what is left"
assert tapr.search(gallery, text="red", min_width=5000).hits == ()
assert [hit.id for hit in tapr.search(gallery, "wide.png", "red", method="image", min_width=50,
    exclude_reference=False, factorizer=None).hits] == wanted, "other methods too"
saved = tapr.SavedSearches(gallery)
saved.save("wide", text="red", min_width=50)
assert [hit.id for hit in saved.run("wide").hits] == wanted
asked = ["search", "-g", "bank", "--text", "red", "--json", "--min-width"]
run = lambda width: CliRunner().invoke(app, [*asked, width])
assert [hit["id"] for hit in json.loads(run("50").stdout)["hits"]] == wanted
assert run("0").exit_code == 2
assert "min_width: Leave out" in Client.search.__doc__
with TestClient(create_app(gallery, factorizer="target-only"), base_url="http://127.0.0.1:8765") as http:
    found = http.post("/api/search", data={"text": "red", "min_width": "50"}).json()
    assert [hit["id"] for hit in found["hits"]] == wanted
    found = http.post("/api/rank", json={"spec": {"target": "red"}, "min_width": 50}).json()
    assert [hit["id"] for hit in found["hits"]] == wanted
    refused = http.post("/api/rank", json={"spec": {"target": "red"}, "min_width": 0}).json()
    assert (refused["code"], refused["option"]) == ("bad_option", "min_width")
    assert http.get("/api/gallery").json()["options"]["min_width"]["description"]
    assert http.get("/api/count").json() == {"count": 3}
    assert http.get("/api/galleries/bank/count", params={"where": "width > 50"}).json() == {"count": 1}
    assert http.get("/api/count", params={"where": "("}).json()["code"] == "bad_filter"
    assert "/api/count" in http.get("/openapi.json").json()["paths"]
print("fine")
"""


def block_of(section: str) -> list[tuple[str, str]]:
    """Files, and the lines that the page puts into each."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    block = re.search(r"^```\n(src/.*?)^```", text, re.M | re.S)
    assert block
    parts = re.split(r"^src/tapr/([^\n,]*)[^\n]*\n", block.group(1), flags=re.M)[1:]
    return list(zip(parts[::2], (part.rstrip("\n") for part in parts[1::2]), strict=True))


def test_a_search_option_and_an_endpoint(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    pytest.importorskip("httpx", reason="the extra 'client' is not installed")
    package = linked_copy(tmp_path)
    option, endpoint = block_of("A search option"), dict(block_of("An endpoint"))
    for (name, lines), (expected, anchor) in zip(option, OPTION_LINES, strict=True):
        assert name == expected
        insert_after(package, name, anchor, lines)
    (package / "server" / "count_api.py").write_text(endpoint.pop("server/count_api.py") + "\n", encoding="utf-8")
    imported, included = endpoint["server/app.py"].splitlines()
    insert_after(package, "server/app.py", "from tapr.server.facet_api import facet_router", imported)
    insert_after(package, "server/app.py", "    app.include_router(facet_router(engine, pool))", included)
    (tmp_path / "pictures").mkdir()
    for name, size in (("wide", (60, 40)), ("narrow", (40, 40)), ("other", (30, 40))):
        flag("red", size=size).save(tmp_path / "pictures" / f"{name}.png")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", OPTION_USE, "pictures"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.stdout.endswith("fine\n"), done.stderr


def test_an_index_option(tmp_path: Path) -> None:
    package = linked_copy(tmp_path)
    for (name, lines), (expected, anchor) in zip(block_of("An index option"), INDEX_OPTION_LINES, strict=True):
        assert name == expected
        insert_after(package, name, anchor, lines)
    write_flags(tmp_path / "pictures", SOME_FLAGS[:3])
    command = [sys.executable, "-m", "tapr", "index", "pictures", "-g", "bank", "--encoder", "fake", "--most", "2"]
    for encoded in (2, 1):
        done = subprocess.run(
            [*command, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
        )
        assert json.loads(done.stdout)["encoded"] == encoded, done.stderr
