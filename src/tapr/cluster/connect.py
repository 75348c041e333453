"""Connects to a Ray cluster. Usage statistics are off, and an address on loopback stays on loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint

NAMESPACE = "tapr"
START = (
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 ray start --head --node-ip-address=127.0.0.1 --port=6379 "
    "--include-dashboard=false --disable-usage-stats"
)
_CURRENT = Path("/tmp/ray/ray_current_cluster")  # file in which Ray stores the address of the last started cluster
_HANDSHAKE_SECONDS = 2.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Ray's own switch for "no cluster beyond this machine". Without it Ray takes 127.0.0.1 for the machine's outer address.
_ONLY_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def ray_module() -> Any:
    """Import Ray with its usage statistics off, or say how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # keeps Ray's C++ log lines out of the terminal
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a deprecation warning at every import
    try:
        import ray
    except ImportError:
        raise BadInput(f"search and index on many machines need Ray: {install_hint('ray')}") from None
    return ray


def connect(address: str = "auto") -> Any:
    """Connect, and return the module ray. `address` is HOST:PORT, or auto: RAY_ADDRESS or the cluster on this machine.

    A process that is already connected keeps its connection.
    """
    if address.startswith("ray://"):
        raise BadInput("ray:// is not supported: start a Ray node on this machine and name the head as HOST:PORT")
    place = _place(address)
    if place is not None:
        _refuse_unreachable(place)
    if place is None or place[0] in _LOOPBACK:
        _stay_here()
    ray = ray_module()
    if not ray.is_initialized():
        try:
            ray.init(
                address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR,
                configure_logging=False,
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise BadInput(_cannot_join(address, reason)) from None
    return ray


def _place(address: str) -> tuple[str, int] | None:
    """Host and port, if they are known without asking Ray."""
    text = address
    if address == "auto":
        text = os.environ.get("RAY_ADDRESS", "")
        with contextlib.suppress(OSError):
            text = text or _CURRENT.read_text(encoding="utf-8").strip()
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        if address == "auto":
            return None
        raise BadInput(f"cannot read the address {address!r}: write HOST:PORT, such as 127.0.0.1:6379, or auto")
    return host, int(port)


def _refuse_unreachable(place: tuple[str, int]) -> None:
    """Fail fast if nothing listens or only one side uses TLS: Ray itself would retry for minutes."""
    where = f"{place[0]}:{place[1]}"
    try:
        with socket.create_connection(place, timeout=5) as line:
            secured = _speaks_tls(line)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(_cannot_join(where, reason)) from None
    wanted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    if secured and not wanted:
        raise BadInput(
            f"the Ray cluster at {where!r} speaks TLS: set RAY_USE_TLS=1 and the certificates, as its nodes have them"
        )
    if wanted and not secured:
        raise BadInput(
            f"the Ray cluster at {where!r} does not speak TLS, and RAY_USE_TLS is set: set it for all nodes or none"
        )


def _speaks_tls(line: socket.socket) -> bool:
    """Try a TLS handshake. No data is sent, so the certificate is not verified here; Ray verifies it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    line.settimeout(_HANDSHAKE_SECONDS)
    try:
        context.wrap_socket(line).close()
    except ssl.SSLError as error:  # a server that requires our certificate ends the handshake with an alert
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _cannot_join(address: str, reason: str) -> str:
    what = f"cannot join the Ray cluster at {address!r} ({reason})"
    return f"{what}: check the address and the token, or start one with: {START}"


def _stay_here() -> None:
    os.environ.setdefault(_ONLY_HERE, "0")
    constants = sys.modules.get("ray._private.ray_constants")
    # Ray was imported earlier and has already read the variable
    if constants is not None and os.environ[_ONLY_HERE] == "0":
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
