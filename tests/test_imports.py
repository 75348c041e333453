"""The import graph has no cycles, those of imports inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import tapr

ROOT = Path(tapr.__file__).parent
# Each package imports only those of earlier lines, imports inside functions included.
ORDER = """
errors types
plugins utils
images
encoders
captions
store
index
gallery
query
factorize score
options
result
search
explain
methods demo
evaluate server
client
cluster
cli
__main__
"""
# `tapr.search(method=...)` ranks by a compared system: the one way up, taken when it is asked for.
UPWARDS = {("tapr.search.searcher", "tapr.methods.single_search")}


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("tapr", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Names that are imported, anywhere but for type checking; of `from a import b` both a.b and a."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported(node)


def graph(found: dict[str, Path]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for name, path in found.items():
        edges[name] = set()
        for target in imported(ast.parse(path.read_text(encoding="utf-8"))):
            module = target if target in found else target.rpartition(".")[0]
            is_extension = target.endswith("._kernel")  # compiled, and imports nothing
            if module in found and module != name and not is_extension:
                edges[name].add(module)
    return edges


def test_there_is_no_import_cycle() -> None:
    try:
        TopologicalSorter(graph(modules())).prepare()
    except CycleError as cycle:
        raise AssertionError(f"modules import each other: {' -> '.join(reversed(cycle.args[1]))}") from None


def test_a_cycle_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from tapr.b import g\n")
    (tmp_path / "b.py").write_text("import tapr.a\n")
    edges = graph({"tapr.a": tmp_path / "a.py", "tapr.b": tmp_path / "b.py"})
    assert edges == {"tapr.a": {"tapr.b"}, "tapr.b": {"tapr.a"}}


def test_packages_import_only_earlier_packages() -> None:
    place = {name: number for number, line in enumerate(ORDER.split("\n")) for name in line.split()}
    edges = graph(modules())
    packages = {name: name.split(".")[1] for name in edges if name != "tapr"}
    assert set(packages.values()) == set(place)
    wrong = {
        (name, target)
        for name, targets in edges.items()
        for target in targets
        if "tapr" not in (name, target)
        and packages[name] != packages[target]
        and place[packages[target]] >= place[packages[name]]
    }
    assert wrong == UPWARDS


def test_every_folder_says_what_it_is_for() -> None:
    empty = [
        name
        for name, path in modules().items()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not empty
