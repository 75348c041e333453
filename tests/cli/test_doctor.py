import json
import sys
from pathlib import Path
from typing import Any

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


def security(*options: str) -> dict[str, dict[str, Any]]:
    done = run("doctor", "--security", "--json", *options)
    return {finding["name"]: finding for finding in json.loads(done.out)["findings"]}


def test_doctor_says_what_a_server_would_expose(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    findings = security("-g", str(tmp_path))
    assert "127.0.0.1" in findings["address"]["said"]
    assert "everyone who reaches the address" in findings["gallery: reading"]["said"]
    assert "nobody" in findings["gallery: writing"]["said"]
    assert findings["gallery: folder"]["good"]
    options = ["--host", "0.0.0.0", "--token", "a long token", "--write-token", "another token", "--rate", "5/s"]
    findings = security("--", f"shop={tmp_path}", *options, "--fetch", "cdn.example", "--trusted-proxy", "10.1.0.7")
    assert findings["address"]["advice"]
    assert "whoever has a token" in findings["gallery shop: reading"]["said"]
    assert "whoever has a write token" in findings["gallery shop: writing"]["said"]
    assert "cdn.example" in findings["fetching"]["said"]
    assert "10.1.0.7" in findings["proxies"]["said"]
    assert "rate 5/s" in findings["requests"]["said"]
    assert "a long token" not in str(findings)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_gallery_that_other_users_may_write_to_is_bad(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = run("doctor", "--security", "-g", str(tmp_path))
    assert done.code == 1
    assert "chmod go-w" in done.out


def test_options_of_serve_are_checked_and_go_with_security(tmp_path: Path) -> None:
    assert run("doctor", "--", "--host", "0.0.0.0").code == 2
    assert run("doctor", "--security", "-g", str(tmp_path), "--", "--host", "0.0.0.0").code == 2
    assert run("doctor", "--security", "-g", str(tmp_path), "--", "--no-such-option").code == 2
