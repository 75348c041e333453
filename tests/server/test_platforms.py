"""A server on systems that lack what Linux has."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapr.cli.serve import run_server
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server import metrics
from tapr.server.settings import Settings


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Importing this module fails from now on, as where it is not installed."""
    for name in list(sys.modules):
        if name == missing or name.startswith(
            (f"{missing}.", "tapr.server.app", "tapr.server.connections", "tapr.server.metrics")
        ):
            monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def guarded(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", guarded)


def test_without_the_module_resource_the_server_is_there() -> None:
    code = "import sys; sys.modules['resource'] = None; import tapr.server.app"  # Windows has none
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn"])
def test_a_part_of_the_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, gallery: Gallery, module: str
) -> None:
    without(monkeypatch, module)
    with pytest.raises(BadInput, match=rf"needs {module}: pip install 'tapr-cir\[serve\]'"):
        run_server(gallery, Settings(port=0))


def test_errors_that_the_extra_would_not_fix_are_not_blamed_on_it(
    monkeypatch: pytest.MonkeyPatch, gallery: Gallery
) -> None:
    without(monkeypatch, "bisect")
    with pytest.raises(ModuleNotFoundError, match="bisect"):
        run_server(gallery, Settings(port=0))


def test_memory_is_reported_where_the_system_provides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = metrics.resident_bytes()
    assert told is None or told > 2**20
    monkeypatch.setattr(Path, "read_text", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))  # no /proc
    without_proc = metrics.resident_bytes()
    assert without_proc is None or without_proc > 2**20
    without(monkeypatch, "resource")
    assert metrics.resident_bytes() is None
    assert "resident_memory" not in metrics.Metrics().text(())
    assert "process_start_time_seconds" in metrics.Metrics().text(())
