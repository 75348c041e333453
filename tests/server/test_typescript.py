"""Types that openapi-typescript makes from the description of a running server, held to by TypeScript's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

TOOLS = ("openapi-typescript@7.13.0", "typescript@5.9.3")  # pinned: a new release must not turn the build red
USE = """
import type { components, operations, paths } from "./api";
type Ranking = components["schemas"]["SearchResult"];
type Put = paths["/api/images/{id}"]["put"];
type Body = NonNullable<Put["requestBody"]>["content"];
const json: Body["application/json"] = { metadata: { price: 4 } };
const raw: Body["application/octet-stream"] = "";
const form: Body["multipart/form-data"] = { picture: "", metadata: "{}" };
type Done = Put["responses"][201]["content"]["application/json"];
const done: Done["done"] = "created";
const named: operations["gallery_search"]["parameters"]["path"] = { gallery: "shop" };
type Problem = Put["responses"][409]["content"]["application/problem+json"];
export function ids(ranking: Ranking, problem: Problem): string[] {
  return [problem.detail, ...ranking.hits.map((hit) => hit.id)];
}
export const used = [json, raw, form, done, named];
// @ts-expect-error: nothing of that kind is ever done
export const wrong: Done["done"] = "burnt";
"""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=90)


def test_its_types_are_those_of_the_api(address: str, tmp_path: Path) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    fast = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--fetch-retries=0")
    try:
        installed = run("npm", "install", *fast, *TOOLS, folder=tmp_path)
    except subprocess.TimeoutExpired:
        pytest.skip("npm's registry is too slow")
    if installed.returncode:
        pytest.skip("npm's registry cannot be reached")
    tools = tmp_path / "node_modules"
    url = f"{address}/openapi.json"
    made = run("node", str(tools / "openapi-typescript/bin/cli.js"), url, "-o", "api.d.ts", folder=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    (tmp_path / "use.ts").write_text(USE)
    checked = run("node", str(tools / "typescript/bin/tsc"), "--noEmit", "--strict", "use.ts", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout
