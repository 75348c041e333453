"""Doors: what a folder of the package and what other packages offer, and what is refused."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapr.encoders.registry import ENCODERS
from tapr.errors import BadInput
from tapr.evaluate.datasets import DATASETS
from tapr.factorize.registry import FACTORIZERS
from tapr.methods import METHODS
from tapr.plugins import Registry
from tests.refusals import refused

GROUP = "tapr.toys"


@dataclass(frozen=True)
class Toy:
    name: str
    order: int = 50


def registry_of(folder: str = "tapr_toys_own") -> Registry[Toy]:
    return Registry(
        "toy",
        folder,
        GROUP,
        name_of=lambda toy: toy.name,
        order_of=lambda toy: toy.order,
        is_row=lambda offered: hasattr(offered, "order"),
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, with a package whose modules offer `ball` and `kite`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    own = tmp_path / "tapr_toys_own"
    own.mkdir()
    (own / "__init__.py").write_text("")
    (own / "support.py").write_text("HELP = 1\n")
    row = "from types import SimpleNamespace as Toy\nROWS = (Toy(name={!r}, order={}),)\n"
    (own / "a_kite.py").write_text(row.format("kite", 20))
    (own / "the_ball.py").write_text(row.format("ball", 10))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("tapr_toys")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def installed(site: Path, package: str, offers: dict[str, str], code: str = "") -> None:
    """What pip leaves behind of a package: its code and the entry points it declares."""
    (site / f"tapr_toys_{package}.py").write_text(code)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = tapr_toys_{package}:{value}" for name, value in offers.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")


TOP = "from types import SimpleNamespace as Toy\nTOP = Toy(name='top', order=1)\n"


def test_a_file_in_the_folder_is_all_it_takes(site: Path) -> None:
    assert list(registry_of()) == ["ball", "kite"]  # by their order, not by their files
    (site / "tapr_toys_own" / "new.py").write_text(
        "from types import SimpleNamespace as T\nROWS = (T(name='x', order=5),)\n"
    )
    importlib.invalidate_caches()
    assert list(registry_of()) == ["x", "ball", "kite"]
    assert registry_of()["x"].name == "x"


def test_another_package_s_row_is_known_by_name_and_loaded_when_asked_for(site: Path) -> None:
    installed(site, "acme", {"top": "TOP"}, TOP)
    toys = registry_of()
    assert list(toys) == ["ball", "kite", "top"]
    assert len(toys) == 3
    assert "top" in toys
    assert "tapr_toys_acme" not in sys.modules
    assert toys["top"].name == "top"
    assert "tapr_toys_acme" in sys.modules


def test_an_unknown_name_lists_the_others(site: Path) -> None:
    installed(site, "acme", {"top": "TOP"}, TOP)
    with refused("unknown_name", "'yoyo'", "ball, kite, top"):
        registry_of()["yoyo"]


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        ("TOP", "import no_such_module_anywhere\n", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("TOP", "raise RuntimeError('it rains')\n", "RuntimeError: it rains"),
        ("LOST", TOP, "AttributeError: module 'tapr_toys_acme' has no attribute 'LOST'"),
        ("TOP", "TOP = 3\n", "tapr_toys_acme:TOP is no toy"),
        ("TOP", TOP.replace("'top'", "'bottom'"), "tapr_toys_acme:TOP is named 'bottom'"),
    ],
)
def test_a_broken_package_is_named_and_the_others_go_on(site: Path, value: str, code: str, reason: str) -> None:
    installed(site, "acme", {"top": value}, code)
    installed(
        site, "better", {"drum": "DRUM"}, "from types import SimpleNamespace as T\nDRUM = T(name='drum', order=1)\n"
    )
    toys = registry_of()
    sentence = f"the toy 'top' of the package acme cannot be used ({reason}): mend or uninstall that package"
    with pytest.raises(BadInput) as caught:
        toys["top"]
    assert str(caught.value) == sentence
    assert [name for name, _ in toys.working()] == ["ball", "kite", "drum"]
    assert toys.broken == {"top": sentence}


def test_a_name_of_our_own_is_not_taken_over(site: Path) -> None:
    installed(site, "acme", {"ball": "TOP"}, TOP)
    toys = registry_of()
    with refused("bad_plugin", "'ball'", "tapr itself", "acme"):
        toys["ball"]
    assert toys["kite"].name == "kite"
    assert [name for name, _ in toys.working()] == ["kite"]


def test_two_packages_of_one_name_are_both_refused(site: Path) -> None:
    installed(site, "acme", {"top": "TOP"}, TOP)
    installed(site, "better", {"top": "TOP"}, TOP)
    with refused("bad_plugin", "'top'", "acme", "better"):
        registry_of()["top"]


def test_two_files_of_one_name_are_refused(site: Path) -> None:
    row = "from types import SimpleNamespace as Toy\nROWS = (Toy(name='kite', order=20),)\n"
    (site / "tapr_toys_own" / "b_kite.py").write_text(row)
    importlib.invalidate_caches()
    with refused("bad_plugin", "tapr_toys_own", "'kite'"):
        list(registry_of())


def test_our_own_names_and_their_order() -> None:
    """A new one may stand anywhere between them, so that whoever adds it has no list to change."""
    names: dict[str, Iterable[str]] = {
        "circo cirr fashioniq lasco emoji jsonl": DATASETS.own,
        "clip-b16 open_clip fake": ENCODERS.own,
        "grounded openai records target-only": FACTORIZERS.own,
        "image text sum target target+image maxsim basic cirevl osrcir ldre ldre-shared pdv-cirevl pdv-ldre soft cotmr "
        "sdr-cir stitch tapr-paper tapr": METHODS.own,
    }
    for expected, own in names.items():
        assert [name for name in own if name in expected.split()] == expected.split()
    assert all(method.help for method in METHODS.own.values())
    assert all(row.help for row in DATASETS.own.values())
    assert all(row.help for row in FACTORIZERS.own.values())


def test_the_names_are_read_without_what_is_heavy() -> None:
    """Also where an extra is missing: its row is there, and says what to install when it is loaded."""
    code = """
import sys
from collections.abc import Iterator
missing = ("torch", "open_clip", "xllamacpp", "httpx", "fastapi", "ray")
sys.modules.update(dict.fromkeys(missing))
from tapr.encoders.registry import ENCODERS, known_models
from tapr.factorize.registry import FACTORIZERS
assert len(ENCODERS) and len(FACTORIZERS) and len(known_models())
assert "onnxruntime" not in sys.modules, "a list of names needs no tower"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
