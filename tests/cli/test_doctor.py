import json
import sys
from pathlib import Path

import pytest

from tapr.search import kernels
from tapr.search.kernels import choose
from tests.cli.terminal import run


def test_doctor_says_what_is_here_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_HOME", str(tmp_path))
    done = run("doctor")
    assert done.code == 0
    assert "onnxruntime" in done.out
    assert "matching" in done.out
    assert "tapr models pull clip-b16" in done.out  # nothing is in this cache folder
    findings = {finding["name"]: finding for finding in json.loads(run("doctor", "--json").out)["findings"]}
    assert findings["cache folder"]["said"].startswith(str(tmp_path))
    assert findings["python"]["good"]


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("TAPR_KERNEL", "foo", "TAPR_KERNEL is 'foo': choose one of numpy, cpu, cuda, torch"),
        ("TAPR_THREADS", "many", "TAPR_THREADS is 'many': give a whole number above 0"),
    ],
)
def test_doctor_says_what_a_search_would_be_refused_with(
    variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    done = run("doctor")
    assert done.code == 1
    assert sentence in done.out
    finding = next(f for f in json.loads(run("doctor", "--json").out)["findings"] if f["name"] == "matching")
    assert finding == {"name": "matching", "good": False, "said": sentence, "advice": ""}


def test_doctor_says_which_kernel_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_THREADS", "3")
    monkeypatch.setenv("TAPR_KERNEL", "numpy")
    assert "kernel numpy" in run("doctor").out
    monkeypatch.delenv("TAPR_KERNEL")
    monkeypatch.setattr(choose, "_why_not_compiled", lambda: "it was not built")
    said = run("doctor").out
    assert "kernel numpy, 3 threads; there is no compiled kernel, because it was not built" in said
    assert "install a C++17 compiler" in said


def test_doctor_says_that_windows_has_no_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tapr.search.kernels.cpu", None)
    monkeypatch.delattr(kernels, "cpu", raising=False)
    monkeypatch.setattr("platform.system", lambda: "Windows")
    monkeypatch.delenv("TAPR_KERNEL", raising=False)
    finding = next(f for f in json.loads(run("doctor", "--json").out)["findings"] if f["name"] == "matching")
    assert finding["said"].startswith("kernel numpy, ")
    assert finding["said"].endswith(
        "there is no compiled kernel, because none is made for Windows (its sources need gcc or clang)"
    )
    assert finding["advice"] == "", "no compiler would help"
    monkeypatch.setenv("TAPR_KERNEL", "cpu")
    assert "none is made for Windows" in run("doctor").out
