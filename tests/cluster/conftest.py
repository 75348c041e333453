"""One small Ray cluster for all tests here: a head and two workers, each a raylet of its own, on loopback."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tapr

QUICK = {  # a lost node is noticed after about 2 seconds, not after 15
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TAPR_THREADS": "1",
}
with socket.create_server(("127.0.0.1", 0)) as _free:
    S3_PORT = _free.getsockname()[1]  # of the S3 server of test_storage.py; nodes know it from their start on
S3 = {
    "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{S3_PORT}",
}  # fmt: skip
STORE = 80 * 2**20  # bytes of each node's object store: the least that Ray takes is 75 MiB


@dataclass
class SmallCluster:
    """The cluster, and what a test needs to break it."""

    ray: Any
    cluster: Any
    workers: list[Any]

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> Any:
        node = self.cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=STORE)
        self.workers.append(node)
        return node

    def kill(self, node: Any) -> None:
        """kill -9 of a raylet; what it had started dies with it."""
        self.workers.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="session")
def small_cluster() -> Iterator[SmallCluster]:
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'tapr-cir[ray]'")
    before = dict(os.environ)
    os.environ.update(QUICK | S3)  # before Ray is imported: it reads them once
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(tapr.__file__).parents[1]), *filter(None, [before.get("PYTHONPATH")])]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        from tapr.cluster.connect import connect

        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0, "node_ip_address": "127.0.0.1", "object_store_memory": STORE, "include_dashboard": False,
            },
        )  # fmt: skip
        small = SmallCluster(None, cluster, [])
        small.add()
        small.add()
        small.ray = connect(small.address)
    yield small
    small.ray.shutdown()
    cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)
