"""A new operator is two files: a copy of the package gets one, and everything takes it up.

`unlike` has a sign and evidence that no factor of ours has together: what it says is compared with the picture as a
whole, as Target is, and counts against it, as Remove does. docs/extending.md shows the same lines.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tapr
from tests.package_copy import PACKAGE, insert_after, linked_copy
from tests.pictures import SOME_FLAGS, write_flags

# file -> (a line that stands there, the line that is put after it)
CHANGES = {
    "query/factors.py": (
        (
            'WordFactor = Literal["target", "add", "preserve", "remove"]  # factors expressed in words',
            'WordFactor = Literal["target", "add", "preserve", "remove", "unlike"]',
        ),
        (
            '    FactorRow("remove", -1, ("local",), True, 0.3, (214, 72, 32), "what to avoid", "Leave out"),',
            '    FactorRow("unlike", -1, ("global",), True, 0.4, (150, 110, 0), "not like that"),',
        ),
    ),
    "query/spec.py": (
        ('    remove: float = PRIOR["remove"]', '    unlike: float = PRIOR["unlike"]'),
        ("    remove: tuple[str, ...]", "    unlike: tuple[str, ...]"),
        ("        continuity: float | None = None,", "        unlike: Iterable[str] = (),"),
        (
            '        given: dict[WordFactor, Iterable[str]] = {"add": add, "preserve": preserve, "remove": remove}',
            '        given["unlike"] = unlike',
        ),
    ),
}

SCRIPT = """
import json, sys
from pathlib import Path

import numpy as np

import tapr
from tapr.search.kernels.choose import choose_kernel
from tapr.search.sweep import score as kernel_score
from tapr.query.open_reference import open_reference
from tapr.explain.report import Panel, write_report
from tapr.score.definition import score, term_scores

folder, kernels = Path(sys.argv[1]), sys.argv[2].split(",")
gallery = tapr.Gallery.open(folder / "bank")
encoder = gallery.encoder
spec = tapr.EditSpec.from_dict({"target": "a red flag", "add": ["red"], "remove": ["white"], "unlike": ["blue", "sea"]})
assert tapr.EditSpec.from_json(spec.to_json()) == spec
assert spec.phrases == ("a red flag", "red", "white", "blue", "sea")

# the score, by hand from the operators' definitions
reference = open_reference(folder / "pictures" / "red-white-blue.png", encoder).evidence
block = gallery.gather(gallery.rows)
v0, locals_ = block.global_vectors.astype(np.float64), block.decoded().astype(np.float64)
def soft(probe):
    s = locals_ @ probe
    p = np.exp((s - s.max(axis=1, keepdims=True)) / 0.02)
    return (p * s).sum(axis=1) / p.sum(axis=1)
texts = lambda *phrases: encoder.encode_texts(phrases).astype(np.float64)
atoms = lambda *phrases: encoder.encode_atoms(phrases).astype(np.float64)
continuity = np.mean([soft(probe) for probe in reference.local_vectors[0].astype(np.float64)], axis=0)
by_hand = (
    1.0 * (v0 @ texts("a red flag")[0]) + 0.5 * soft(atoms("red")[0]) + 0.5 * continuity
    - 0.3 * soft(atoms("white")[0]) - 0.4 * (v0 @ texts("blue", "sea").T).mean(axis=1)
) / (1.0 + 0.5 + 0.5 + 0.3 + 0.4)
query = tapr.compile_query(spec, reference, encoder)
np.testing.assert_allclose(score(query, v0, locals_), by_hand, atol=1e-6)
heavy = tapr.compile_query(spec, reference, encoder, tapr.Weights.parse("unlike=2"))
assert [term.text for term in query.terms if term.factor == "unlike"] == ["blue", "sea"]
assert not np.allclose(score(heavy, v0, locals_), by_hand)

# every kernel: none of them knows a factor
for name in kernels:
    np.testing.assert_allclose(kernel_score(query, gallery, choose_kernel(name)), by_hand, atol=2e-5)

# contributions, and their sum
parts = term_scores(query, v0, locals_)
np.testing.assert_allclose(parts.sum(axis=1), by_hand, atol=1e-6)
ranking = tapr.search(gallery, folder / "pictures" / "red-white-blue.png", spec=spec)
told = [part for part in ranking.hits[0].contributions if part.factor == "unlike"]
assert [part.text for part in told] == ["blue", "sea"]
without = tapr.EditSpec("a red flag", ["red"], [], ["white"])
plain = tapr.search(gallery, folder / "pictures" / "red-white-blue.png", spec=without)
assert {hit.id: hit.score for hit in plain.hits} != {hit.id: hit.score for hit in ranking.hits}

# the report
page = write_report(folder / "report.html", [Panel(ranking)]).read_text()
assert '"unlike": {"colour": "#966e00", "label": "Unlike"}' in page
assert '"factor": "unlike", "text": "sea", "key": null' in page

# HTTP: the table of factors that the page draws itself from, and a search with the new factor
from starlette.testclient import TestClient
from tapr.server.app import create_app
from tapr.server.settings import Settings
app = create_app(gallery, Settings(), "target-only")
with TestClient(app, base_url="http://127.0.0.1") as client:
    factors = {row["name"]: row for row in client.get("/api/gallery").json()["factors"]}
    asked = {"spec": spec.to_dict(), "reference_id": ranking.hits[0].id}
    answer = client.post("/api/rank", json=asked).json()
row = factors["unlike"]
assert (row["sign"], row["from_words"], row["weight"], row["colour"]) == (-1, True, 0.4, "#966e00"), row
assert [part["text"] for part in answer["hits"][0]["contributions"] if part["factor"] == "unlike"] == ["blue", "sea"]
assert answer["weights"]["unlike"] == 0.4

# a language model is asked for it, and the evaluation's controls and theta have it
from tapr.evaluate.controls import variants
from tapr.evaluate.terms import keys_of
from tapr.evaluate.theta import GRID
from tapr.factorize.answers import SCHEMA
assert "unlike" in json.dumps(SCHEMA)
assert {"w/o Unlike", "Unlike x0.75"} <= {variant.name for variant in variants(["factors", "theta"])}
assert ("unlike", "sea", "global") in keys_of(spec)
assert GRID[0].as_dict()["unlike"] == 0.4
print("taken up")
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the new operator; what is not changed is linked."""
    root = tmp_path_factory.mktemp("operator")
    package = linked_copy(root)
    for name, changes in CHANGES.items():
        for line, added in changes:
            insert_after(package, name, line, added)
    return root


def test_two_files_are_all_that_an_operator_touches(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    write_flags(tmp_path / "pictures", SOME_FLAGS)
    tapr.Gallery.build(tmp_path / "bank", tmp_path / "pictures", encoder="fake")
    kernels = "numpy,cpu" if importlib.util.find_spec("tapr.search.kernels._kernel") else "numpy"
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("TAPR_KERNEL", None)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), kernels]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "taken up\n", done.stderr
    assert len(CHANGES) == 2


def test_the_page_names_no_factor_but_the_target() -> None:
    """It draws what the API's table says; only the sentence, which is no list of atoms, is a case of its own."""
    for script in (PACKAGE / "server" / "web").glob("*.js"):
        text = script.read_text(encoding="utf-8")
        for name in ("add", "preserve", "remove"):
            for quoted in (f'"{name}"', f"'{name}'", f"spec.{name}", f"weights.{name}"):
                assert quoted not in text, f"{script.name} names {quoted}"
    assert json.dumps("unlike") not in (PACKAGE / "query" / "factors.py").read_text(encoding="utf-8")


def test_the_docs_show_the_same_lines() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, changes in CHANGES.items():
        assert f"src/tapr/{name}" in page
        for _, added in changes:
            assert f"\n{added}\n" in page
