"""The documentation site builds without a warning, and every page is in its contents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site needs Sphinx and furo: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "site")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    assert "exclude_reference" in reference, "signatures come from the code"
    assert "--explain" in (tmp_path / "site" / "reference" / "cli.html").read_text(encoding="utf-8")
