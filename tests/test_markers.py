"""Heavy tests are marked where they stand; of each kind `make test` runs at least one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.conftest import HEAVY

NEEDED = ("fastapi", "onnx", "playwright", "ray", "torch", "triton")  # whose tests are not collected without them
WITHOUT = {"slow"}  # its tests try more of what others try


def test_every_heavy_kind_has_a_smoke_test(request: pytest.FixtureRequest) -> None:
    config = request.config
    if config.getoption("-m") not in ("", "not heavy or smoke") or config.args != config.getini("testpaths"):
        pytest.skip("only some tests were asked for")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    smoke = [item for item in request.session.items if item.get_closest_marker("smoke")]
    assert {kind for kind in HEAVY for item in smoke if item.get_closest_marker(kind)} == set(HEAVY) - WITHOUT
    assert all(item.get_closest_marker("heavy") for item in smoke)
