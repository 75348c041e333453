"""Known vulnerabilities of what requirements/dev.lock names, asked of the vulnerability service through pip-audit.

Exit 1 where one is known. Where the service cannot be reached, or is a mirror that knows no package, the audit is
skipped with a sentence: a build without a network is not a failed one, and not an audited one either.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements" / "dev.lock"
_LEAST = 0.9  # the share of packages that the service must know; builds of torch for CPUs alone are not on the index


def verdict(report: dict[str, Any] | None) -> tuple[int, str]:
    """The exit status and what to say."""
    if report is None:
        return 0, "audit skipped: the vulnerability service cannot be reached"
    packages = report["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    found = [_said(package, hole) for package in known for hole in package["vulns"]]
    if found:
        end = f"audit failed: {len(found)} known vulnerabilities; `make lock` takes new versions"
        return 1, "\n".join([*found, end])
    if len(known) < _LEAST * len(packages):
        return 0, f"audit skipped: the vulnerability service knows {len(known)} of {len(packages)} packages: a mirror?"
    left = [package["name"] for package in packages if "skip_reason" in package]
    rest = f"; not known to the service: {', '.join(left)}" if left else ""
    return 0, f"audit: no known vulnerability in {len(known)} packages{rest}"


def _said(package: dict[str, Any], hole: dict[str, Any]) -> str:
    mended = ", ".join(hole["fix_versions"]) or "no version"
    return f"{package['name']} {package['version']}: {hole['id']}, fixed in {mended}"


def audit(timeout: int = 15) -> dict[str, Any] | None:
    """pip-audit's report, or None where it could not ask."""
    command = [sys.executable, "-I", "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--require-hashes"]
    command += ["--progress-spinner=off", f"--timeout={timeout}", "--format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip().rpartition("\n")[2], file=sys.stderr)
        return None
    return report


if __name__ == "__main__":
    code, said = verdict(audit())
    print(said)
    sys.exit(code)
