import json
from pathlib import Path

import pytest

from tests.commands.terminal import run


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
