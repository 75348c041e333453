"""The commands of docs/reproduce.md, taken from the page as they stand, run on a miniature of the three benchmarks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluate.miniature import answer, draw_all
from tests.factorize.scripted_server import ScriptedServer
from tests.preloaded import preloaded

PAGE = Path(__file__).parents[2] / "docs" / "reproduce.md"
SCORES = {
    "circo.json": {"tapr": {"mAP@5": 12.5, "mAP@10": 13, "mAP@25": 14, "mAP@50": 15}},
    "cirr.json": {"tapr": {"recall_top_1_correct_composition": 0.25, "recall_inset_top_1_correct_composition": 0.5}},
}


def blocks() -> list[str]:
    """Every block of the page that is marked bash; what is marked console needs a GPU, the real data or a server."""
    return re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("httpx", reason="asking a server needs the extra `llm`")
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    folder = tmp_path_factory.mktemp("reproduce")
    command = folder / "bin" / "tapr"
    (folder / "scores").mkdir()
    for name, scores in SCORES.items():
        (folder / "scores" / name).write_text(json.dumps(scores))
    with preloaded() as interpreter, ScriptedServer(script=answer) as server:
        interpreter.install(command)
        environment = {
            **os.environ,
            "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TAPR_HOME": str(folder / "home"),
        }
        environment |= {"TAPR_LLM_BASE_URL": server.url, "TAPR_LLM_MODEL": "m", "RUNS": "runs/one", "ENCODER": "fake"}
        environment |= {"EXAMPLES": str(PAGE.parents[1] / "examples")}
        environment |= {"DATA": str(draw_all(folder / "data")), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(blocks())],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


def test_every_table_and_figure_is_there(finished: Path) -> None:
    for name in ("table1", "table2", "table3", "table3-gains", "table4", "table5"):
        for suffix in ("tex", "csv"):
            assert (finished / "paper" / f"{name}.{suffix}").stat().st_size > 0
    for name in ("tau", "theta"):
        for suffix in ("png", "svg", "pdf"):
            assert (finished / "paper" / f"{name}.{suffix}").stat().st_size > 0
    figures = {path.name for path in finished.rglob("figures/*.pdf")}
    assert figures == {"37730-methods.pdf", "60-cells.pdf", "22-cells.pdf"}


def test_table_1_has_the_papers_rows_and_the_servers_scores(finished: Path) -> None:
    rows = [line.split(",") for line in (finished / "paper" / "table1.csv").read_text().splitlines()]
    assert sum(row[2] == "TAPR" for row in rows) == 23
    assert sum(row[2] == "WISER" for row in rows) == 19
    text = (finished / "paper" / "table1.csv").read_text()
    assert "fake,TAPR *,this run,12.50,13.00,14.00,15.00,25.00,–,–,50.00,–,–" in text


def test_all_methods_have_records_of_the_language_model_and_are_marked(finished: Path) -> None:
    for name in ("circo-val", "cirr-val", "fashioniq-val"):
        metrics = json.loads((finished / "runs" / "one" / name / "metrics.json").read_text())
        assert metrics["failed"] == metrics["fallbacks"] == {}
        assert set(metrics["skipped"]) == {"weimocir", "xr"}, (
            "they want captions of the gallery, which these banks have not"
        )
        for method in ("cirevl", "osrcir", "ldre", "pdv-ldre", "soft", "cotmr", "sdr-cir", "stitch", "tapr"):
            assert "the wording of its prompts" in metrics["methods"][method]["ours"]
        assert set(metrics["gains"]) >= {"interaction"}
    config = json.loads((finished / "runs" / "one" / "cirr-test1" / "config.json").read_text())
    assert "27098" in " ".join(config["notes"])
    assert config["theta"]["how"] == "best grid point on CIRCO, CIRR, FashionIQ together"


def test_the_page_and_its_files_say_nothing_of_this_machine(finished: Path) -> None:
    page = (finished / "paper" / "paper.md").read_text()
    assert str(finished) not in page


_DOCUMENT = r"""
\documentclass[10pt,twocolumn]{article}
\usepackage{booktabs,adjustbox}
\usepackage[margin=2cm]{geometry}
\extrafloats{100}
\begin{document}
%s
\end{document}
"""


def test_the_tables_compile_and_fit_the_page(finished: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("compiling tables needs pdflatex")
    tables = sorted(finished.rglob("*.tex"))
    assert len(tables) > 20
    pages = "\n".join(f"\\input{{{path}}}\\clearpage" for path in tables)
    (tmp_path / "all.tex").write_text(_DOCUMENT % pages)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    environment = {**os.environ, "max_print_line": "1000", "TEXMFVAR": str(tmp_path / "fonts")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.findall(r"Overfull .hbox.*|.*too large.*", done.stdout)
