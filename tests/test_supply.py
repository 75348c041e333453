"""What tapr is made of and what it loads: no pickle, no network at import, a lock that fits what is declared."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def calls(tree: ast.AST) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg or "**": word.value for word in node.keywords}


def unsafe_loads(source: str) -> list[str]:
    """What in a source may run code that a file of data holds."""
    tree, found = ast.parse(source), []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {name}" for name in names if name.partition(".")[0] in UNPICKLERS]
    for called, words in calls(tree):
        said = {name: ast.unparse(value) for name, value in words.items()}
        if called.endswith("torch.load") and said.get("weights_only") != "True":
            found.append("torch.load without weights_only=True")
        if called in ("np.load", "numpy.load", "np.memmap.load") and said.get("allow_pickle", "False") != "False":
            found.append("np.load with allow_pickle")
        if called.endswith("read_pickle"):  # of pandas, whose other parts read and write plain tables
            found.append(called)
        if called in ("eval", "exec", "yaml.load", "os.system", "torch.jit.load") or said.get("shell") == "True":
            found.append(called)
    return found


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "import torch\ntorch.load('x')", "np.load(f, allow_pickle=True)",
     "subprocess.run(x, shell=True)", "eval(x)", "import pandas\npandas.read_pickle(x)"],
)  # fmt: skip
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert unsafe_loads(source)


# messages between processes that tapr itself started; no file and no request is read this way (SECURITY.md)
OWN_PROCESSES = ("src/tapr/cluster/chunked_calls.py", "src/tapr/utils/worker_process.py")


def test_no_data_is_unpickled() -> None:
    assert len(SOURCES) > 100
    found = {path.relative_to(ROOT).as_posix(): unsafe_loads(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: what for path, what in found.items() if what} == {path: ["imports pickle"] for path in OWN_PROCESSES}


IMPORT_ALL = """
import importlib, pkgutil, socket, sys

def refuse(*_, **__):
    raise AssertionError("a module opens a socket when it is imported")

for name in ("socket", "create_connection", "getaddrinfo"):
    setattr(socket, name, type(name, (socket.socket,), {"__init__": refuse}) if name == "socket" else refuse)
import tapr
count = 0
for module in pkgutil.walk_packages(tapr.__path__, "tapr."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # an extra that is not installed
        if (error.name or "").partition(".")[0] == "tapr":
            raise
    count += 1
print(count)
"""


def test_no_module_asks_the_network_when_it_is_imported() -> None:
    command = [sys.executable, "-c", IMPORT_ALL]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_onnxruntime_sends_no_telemetry(tmp_path: Path) -> None:
    """Its releases keep a name for the machine and a queue of events in the cache folder, were they not told to."""
    hidden = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    script = (
        "import os; from tapr.encoders.onnx_import import onnxruntime as o; o.SessionOptions(); print(o.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*"))
    # ours is the only import: another one would come first and be heard
    others = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if path.name != "onnx_import.py" and re.search(r"^\s*(import|from) onnxruntime", path.read_text(), re.MULTILINE)
    ]
    assert not others


def declared() -> dict[str, str]:
    """Name -> version specifier of everything that the development install asks for, extras followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, wanted = project["optional-dependencies"], {}
    waiting = [*project["dependencies"], *extras["dev"]]
    while waiting:
        name, of, rest = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?([^;]*).*", waiting.pop()).groups()  # type: ignore[union-attr]
        if name == project["name"]:
            waiting += [line for extra in of.split(",") for line in extras[extra]]
        else:
            wanted[re.sub(r"[-_.]+", "-", name).lower()] = rest.strip()
    return wanted


def locked() -> dict[str, tuple[str, int]]:
    """Name -> version, number of hashes."""
    text = (ROOT / "requirements" / "dev.lock").read_text()
    parts = re.findall(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    return {name: (version, hashes.count("--hash")) for name, version, hashes in parts}


def test_the_lock_has_a_hash_for_everything_that_is_declared() -> None:
    packaging = pytest.importorskip("packaging.specifiers")
    wanted, found = declared(), locked()
    lines = (ROOT / "requirements" / "dev.lock").read_text().splitlines()
    assert sum("==" in line for line in lines) == len(found)  # every line was understood
    assert all(count for _, count in found.values())
    assert set(wanted) - set(found) == set(), "not locked: run `make lock`"
    wrong = [
        f"{name} {found[name][0]} is not {specifier}"
        for name, specifier in wanted.items()
        if not packaging.SpecifierSet(specifier).contains(found[name][0], prereleases=True)
    ]
    assert wrong == [], "run `make lock`"


def test_the_floors_are_those_that_never_unpickle() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for lines in extras.values():
        for line in lines:
            floor = re.match(r"(torch|open_clip_torch)[>=]=([\d.]+)", line)
            if floor:
                least = {"torch": (2, 6), "open_clip_torch": (2, 30)}[floor[1]]
                assert tuple(map(int, floor[2].split(".")[:2])) >= least, line


def package(name: str, *holes: str) -> dict[str, Any]:
    return {"name": name, "version": "1", "vulns": [{"id": hole, "fix_versions": ["2"]} for hole in holes]}


def test_an_audit_is_passed_failed_or_said_to_be_skipped() -> None:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    unknown = {"name": "x", "skip_reason": "not found"}
    assert audit.verdict(None) == (0, "audit skipped: the vulnerability service cannot be reached")
    assert audit.verdict({"dependencies": [unknown, unknown]})[1].startswith("audit skipped: the vulnerability service")
    assert audit.verdict({"dependencies": [package("a")]}) == (0, "audit: no known vulnerability in 1 packages")
    code, said = audit.verdict({"dependencies": [package("a", "PYSEC-1"), unknown, unknown]})
    assert code == 1
    assert said.startswith("a 1: PYSEC-1, fixed in 2\n")
