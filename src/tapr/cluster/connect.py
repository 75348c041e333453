"""Joining a Ray cluster. Usage statistics are off, and an address on loopback stays on loopback."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from tapr.errors import BadInput
from tapr.extras import install_hint

NAMESPACE = "tapr"
START = (
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 ray start --head --node-ip-address=127.0.0.1 --port=6379 "
    "--include-dashboard=false --disable-usage-stats"
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Ray's own switch for "no cluster beyond this machine". Without it Ray takes 127.0.0.1 for the machine's outer address.
_ONLY_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def ray_module() -> Any:
    """Ray, imported with its usage statistics off, or a sentence that says how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else each import warns of a later change
    try:
        import ray
    except ImportError:
        raise BadInput(f"search and index on many machines need Ray: {install_hint('ray')}") from None
    return ray


def connect(address: str = "auto") -> Any:
    """-> the module ray, connected. `address` is HOST:PORT, or auto for RAY_ADDRESS or the cluster on this machine.

    A process that is connected already stays where it is.
    """
    host = (os.environ.get("RAY_ADDRESS", "") if address == "auto" else address).rpartition(":")[0]
    if "ray" not in sys.modules and (host in _LOOPBACK or not host):
        os.environ.setdefault(_ONLY_HERE, "0")
    ray = ray_module()
    if address.startswith("ray://"):
        raise BadInput("ray:// is not supported: start a Ray node on this machine and name the head as HOST:PORT")
    if not ray.is_initialized():
        try:
            ray.init(
                address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR,
                configure_logging=False,
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise BadInput(
                f"cannot join the Ray cluster at {address!r} ({reason}): check the address, or start one with: {START}"
            ) from None
    return ray
