"""Searching on a real cluster: one machine's answers, also while actors and nodes are killed, moved and added."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tapr
from tapr import BadInput, Gallery
from tapr.cli.main import app
from tapr.cluster import deployment
from tapr.cluster.connect import NAMESPACE
from tapr.cluster.gallery import ClusterGallery
from tapr.errors import Unavailable
from tapr.search.kernels.choose import choose_kernel
from tapr.search.topk import top_k_many
from tests.cluster.conftest import SmallCluster
from tests.cluster.galleries import DIM, build, build_wide, said
from tests.pictures import flag, png
from tests.search.banks import make_query

ASKED = {"spec": {"target": "red and white", "add": ["red"], "remove": ["blue"]}, "k": 12}


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return build(tmp_path_factory.mktemp("searched"))


@pytest.fixture(scope="module")
def is_held(small_cluster: SmallCluster, near: Gallery) -> Iterator[Callable[..., ClusterGallery]]:
    """Actors stay from test to test: one that asks for the same groups takes those that are there."""

    def start(groups: int, copies: int = 1, **options: Any) -> ClusterGallery:
        deployment.start(
            small_cluster.ray, deployment.OpenedGallery.at(near.path), deployment.DeploymentOptions(groups, copies)
        )
        return ClusterGallery.open(near.path, address=small_cluster.address, encoder=near.encoder, **options)

    yield start
    deployment.stop(small_cluster.ray)


class Stream:
    """Queries one after the other, until the test is done with what it does meanwhile."""

    def __init__(self, far: Gallery, near: Gallery) -> None:
        self._far, self._wanted = far, said(tapr.search(near, "001.png", **ASKED))  # type: ignore[arg-type]
        self.answered, self.failed, self.wrong = 0, [], 0  # type: int, list[tuple[float, str]], int
        self._stop, self._thread = Event(), Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                answer = said(tapr.search(self._far, "001.png", **ASKED))  # type: ignore[arg-type]
            except Unavailable as error:
                self.failed.append((time.monotonic(), str(error)))
                time.sleep(0.02)
                continue
            self.wrong += answer != self._wanted
            self.answered += 1

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int = 3) -> None:
        until = self.answered + count
        deadline = time.monotonic() + 60
        while self.answered < until and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.answered >= until, self.failed[-1:]


@pytest.mark.parametrize("groups", [7, 2, 1, pytest.param(3, marks=pytest.mark.smoke)])
def test_answers_are_those_of_one_machine(is_held: Callable[..., ClusterGallery], near: Gallery, groups: int) -> None:
    far = is_held(groups)
    for rule in ("fixed", "paper", "adaptive"):
        for where in (None, "id < '008.png'", "id contains '1'"):  # the second leaves groups without a picture
            asked = {**ASKED, "score": rule, "where": where}
            assert said(tapr.search(far, "003.png", **asked)) == said(tapr.search(near, "003.png", **asked))  # type: ignore[arg-type]
    ties = {"text": "purple", "k": 70}
    wanted = said(tapr.search(near, **ties))  # type: ignore[arg-type]
    scores = [hit["score"] for hit in wanted["hits"]]
    assert len(set(scores)) < len(scores)
    assert said(tapr.search(far, **ties)) == wanted  # type: ignore[arg-type]
    assert far.rows.tolist() == near.rows.tolist()
    asked_for = methods_asked(far)
    assert said(tapr.search(far, text="red", k=12)) == said(tapr.search(near, text="red", k=12))
    assert asked_for == ["top_k"], "the hits come with the shares of their scores: nobody is asked twice"
    with pytest.raises(BadInput, match="every vector"):
        tapr.search(far, "003.png", "in red", method="maxsim")


def methods_asked(far: ClusterGallery) -> list[str]:
    """Of the groups, from now on."""
    groups, methods = far._groups, []
    ask = groups.ask

    def noted(method: str, *rest: Any) -> Any:
        methods.append(method)
        return ask(method, *rest)

    groups.__dict__["ask"] = noted
    return methods


def test_a_killed_actor_comes_back_and_no_answer_is_wrong_meanwhile(
    is_held: Callable[..., ClusterGallery],
    near: Gallery,
    small_cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    far, opened = is_held(3), deployment.OpenedGallery.at(near.path)
    (killed,) = [
        state
        for state in deployment.states_of(small_cluster.ray, deployment.current(small_cluster.ray, opened))
        if "-g1of3-" in state.name
    ]
    with Stream(far, near) as stream:
        stream.wait_for_more()
        os.kill(killed.pid, signal.SIGKILL)
        begin = time.monotonic()
        stream.wait_for_more(10)
        back = time.monotonic() - begin
    assert stream.wrong == 0
    assert all("shard group 2 of 3 is missing" in sentence for _, sentence in stream.failed)
    pids = {
        state.pid for state in deployment.states_of(small_cluster.ray, deployment.current(small_cluster.ray, opened))
    }
    assert len(pids - {killed.pid}) == 3, "Ray has restarted it"
    with capsys.disabled():
        failed = f"{len(stream.failed)} queries failed and said why, none was wrong"
        print(f"\n[cluster] 10 answers came within {back:.1f} s of the kill of an actor; {failed}")


def test_without_a_group_queries_fail_or_report_the_missing_share(
    is_held: Callable[..., ClusterGallery], near: Gallery, small_cluster: SmallCluster
) -> None:
    far, opened = is_held(3), deployment.OpenedGallery.at(near.path)
    lost = next(name for name in deployment.current(small_cluster.ray, opened) if name.group == 1)
    small_cluster.ray.kill(small_cluster.ray.get_actor(str(lost), namespace=NAMESPACE), no_restart=True)
    with pytest.raises(Unavailable, match=r"shard group 2 of 3 is missing, with \d+ of 61 pictures"):
        tapr.search(far, text="red", k=5)
    partial = ClusterGallery.open(near.path, address=small_cluster.address, encoder=near.encoder, partial=True)
    ranking = tapr.search(partial, text="red", k=61)
    (note,) = [note for note in ranking.notes if note.startswith("incomplete")]
    missing = len(near) - len(ranking.hits)
    assert f"shard group 2 of 3 is missing, with {missing} of 61 pictures" in note
    whole = tapr.search(near, text="red", k=61)
    left = {hit.id for hit in ranking.hits}
    assert [hit.id for hit in ranking.hits] == [hit.id for hit in whole.hits if hit.id in left]
    deployment.start(small_cluster.ray, opened, deployment.DeploymentOptions(3))
    assert said(tapr.search(far, text="red", k=61)) == said(whole)


def test_the_server_follows_the_cluster_and_says_503_while_a_group_is_missing(
    is_held: Callable[..., ClusterGallery], small_cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line to the API: start, ask, index, start again, stop."""
    client = pytest.importorskip("starlette.testclient", reason="the extra 'serve' is not installed")
    from tapr.server.app import create_app
    from tapr.server.settings import Settings

    monkeypatch.setattr(deployment, "GRACE_SECONDS", 0.5)
    near = build(tmp_path)
    place = ["-g", str(near.path), "--ray", small_cluster.address]
    (copy,) = cli("cluster", "start", *place, "--groups", "1", "--hold", "memory", "--json")["copies"]
    assert (copy["rows"], copy["pictures"], copy["problem"]) == (near.row_count, len(near), None)
    far = ClusterGallery.open(near.path, address=small_cluster.address, encoder=near.encoder)
    body: dict[str, Any] = {"spec": {"target": "red", "add": ["red"]}, "reference_id": "003.png", "k": 5}
    with client.TestClient(create_app(far, Settings(), "target-only"), base_url="http://127.0.0.1") as http:

        def ids() -> list[str]:
            reply = http.post("/api/rank", json=body)
            assert reply.status_code == 200, reply.text
            return [hit["id"] for hit in reply.json()["hits"]]

        assert ids() == [hit.id for hit in tapr.search(near, "003.png", spec=body["spec"], k=5).hits]
        assert "Ray, 1 shard group" in http.get("/api/gallery").json()["kernel"]
        (near.path.parent / "pictures" / "all-red.png").write_bytes(png(flag("red", size=(50, 48))))
        near.sync()
        before = ids()
        assert "all-red.png" not in before, "the cluster holds the old snapshot until it is started again"
        cli("cluster", "start", *place, "--groups", "1", "--json")
        far._looked = 0.0
        deadline = time.monotonic() + 30
        while "all-red.png" not in ids():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        told = cli("cluster", "status", *place, "--json")
        assert [one["calls"] > 0 and one["p99_ms"] > 0 for one in told["copies"]] == [True]
        assert len(told["nodes"]) == 3
        assert cli("cluster", "stop", *place, "--json") == {"stopped": 1}
        reply = http.post("/api/rank", json=body)
        assert reply.status_code == 503
        assert "run tapr cluster start" in reply.json()["detail"]


def cli(*arguments: str) -> Any:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_with_two_copies_a_killed_node_and_a_drained_one_fail_no_query(
    is_held: Callable[..., ClusterGallery],
    near: Gallery,
    small_cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ray, opened = small_cluster.ray, deployment.OpenedGallery.at(near.path)
    far = is_held(2, copies=2)
    with Stream(far, near) as stream:
        stream.wait_for_more()
        small_cluster.kill(small_cluster.workers[0])
        begin = time.monotonic()
        stream.wait_for_more()
        # the actors of a killed node answer for a moment longer: wait until the other worker holds all four
        living = small_cluster.workers[0].node_id
        while [state.node for state in deployment.states_of(ray, deployment.current(ray, opened), 1.0)] != [living] * 4:
            assert time.monotonic() - begin < 60
        back = time.monotonic() - begin
        # the second copies are let go; the first ones go to the new node
        new = small_cluster.add()
        assert len(deployment.scale(ray, opened, copies=1)) == 2
        stream.wait_for_more()
        assert deployment.drain(ray, small_cluster.workers[0].node_id) == 2
        stream.wait_for_more()
        assert {state.node for state in deployment.states_of(ray, deployment.current(ray, opened))} == {new.node_id}
        deployment.scale(ray, opened, groups=1)
        stream.wait_for_more()
    assert (stream.failed, stream.wrong) == ([], 0)
    with capsys.disabled():
        print(
            f"\n[cluster] all copies of a killed node lived again after {back:.1f} s; "
            f"{stream.answered} queries meanwhile, none failed"
        )


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    gallery = build(tmp_path_factory.mktemp("staged"), "fp16")
    Gallery.add_first_stage(gallery.path)
    return Gallery.open(gallery.path, encoder=gallery.encoder)


@pytest.mark.parametrize("kernel", [None, "numpy"])
def test_by_stages_the_answer_is_that_of_one_machine_also_while_an_actor_is_killed(
    small_cluster: SmallCluster, staged: Gallery, kernel: str | None
) -> None:
    ray, opened = small_cluster.ray, deployment.OpenedGallery.at(staged.path)
    states = deployment.start(ray, opened, deployment.DeploymentOptions(3, 2, kernel=kernel))
    assert all(state.first_stage for state in states)
    far = ClusterGallery.open(staged.path, address=small_cluster.address, encoder=staged.encoder)
    chosen = choose_kernel(kernel)
    limits: list[dict[str, Any]] = [{"prefilter": "exact"}, {"prefilter": 1000}, {"budget_ms": 60_000}]
    for where in (None, "id < '030.png'"):
        asked = {**ASKED, "where": where}
        wanted = answer(tapr.search(staged, "003.png", **asked, kernel=chosen))  # type: ignore[arg-type]
        for limit in limits:
            found = tapr.search(far, "003.png", **asked, **limit)  # type: ignore[arg-type]
            assert found.prefilter is not None
            assert found.prefilter.proven
            assert answer(found) == wanted
    few = tapr.search(far, "003.png", **ASKED, prefilter=7)  # type: ignore[arg-type]
    assert few.prefilter is not None
    assert few.prefilter.read <= 7
    groups, ask = far._groups, far._groups.ask

    def killed_in_between(method: str, *rest: Any) -> Any:
        if method == "top_k_by_stages":
            groups.__dict__["ask"] = ask
            os.kill(next(state.pid for state in states if "-g1of3-" in state.name), signal.SIGKILL)
        return ask(method, *rest)

    groups.__dict__["ask"] = killed_in_between
    wanted = answer(tapr.search(staged, "003.png", **ASKED, kernel=chosen))  # type: ignore[arg-type]
    for _ in range(4):  # whichever copy's turn it is
        assert answer(tapr.search(far, "003.png", **ASKED, prefilter="exact")) == wanted  # type: ignore[arg-type]
    deployment.stop(ray, opened.key)


def answer(ranking: tapr.Ranking) -> dict[str, Any]:
    """But for how many pictures were read."""
    found = said(ranking)
    del found["prefilter"]
    found["notes"] = [note for note in found["notes"] if not note.startswith("exact:")]
    return found


def test_a_server_of_a_gallery_on_ray_takes_the_options(small_cluster: SmallCluster, staged: Gallery) -> None:
    testing = pytest.importorskip("starlette.testclient", reason="the extra 'serve' is not installed")
    from tapr.server.app import create_app
    from tapr.server.settings import Settings

    ray, opened = small_cluster.ray, deployment.OpenedGallery.at(staged.path)
    deployment.start(ray, opened, deployment.DeploymentOptions(2))
    far = ClusterGallery.open(staged.path, address=small_cluster.address, encoder=staged.encoder)
    body: dict[str, Any] = {"spec": {"target": "red", "add": ["red"]}, "reference_id": "003.png", "k": 5}
    wanted = [hit.id for hit in tapr.search(staged, "003.png", spec=body["spec"], k=5).hits]
    with testing.TestClient(create_app(far, Settings(), "target-only"), base_url="http://127.0.0.1") as http:
        for limit in ({"prefilter": "exact"}, {"prefilter": 1000}, {"budget_ms": 60_000}):
            reply = http.post("/api/rank", json={**body, **limit})
            assert reply.status_code == 200, reply.text
            assert [hit["id"] for hit in reply.json()["hits"]] == wanted
            assert reply.json()["prefilter"]["proven"]
    told = cli("cluster", "status", "-g", str(staged.path), "--ray", small_cluster.address, "--json")
    assert [copy["first_stage"] for copy in told["copies"]] == [True, True]
    deployment.stop(ray, opened.key)


_STARTED_ELSEWHERE = """
import sys
from tapr.cluster import deployment
from tapr.cluster.connect import connect
opened = deployment.OpenedGallery.at(sys.argv[1])
print([state.pid for state in deployment.start(connect(sys.argv[2]), opened, deployment.DeploymentOptions(1))])
"""


def test_an_actor_comes_back_after_the_process_that_started_it_has_ended(
    small_cluster: SmallCluster, tmp_path: Path
) -> None:
    """Also with what is too large for one argument: Ray would look for it in the store of that process."""
    near = build_wide(tmp_path / "wide")
    done = subprocess.run(
        [sys.executable, "-c", _STARTED_ELSEWHERE, str(near.path), small_cluster.address],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (pid,) = json.loads(done.stdout.splitlines()[-1])
    far = ClusterGallery.open(near.path, address=small_cluster.address)
    query = make_query(np.random.default_rng(2), 5, DIM)
    (right,) = top_k_many([query], near, 3)

    def is_found() -> bool:
        (found,) = far.top_k_many([query], 3, "exact")
        return found.positions.tolist() == right.positions.tolist() and found.scores.tobytes() == right.scores.tobytes()

    assert is_found()
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 200
    while True:
        try:
            assert is_found()
            break
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    states = deployment.states_of(small_cluster.ray, deployment.current(small_cluster.ray, far._opened))
    assert [state.pid for state in states] != [pid]
    deployment.stop(small_cluster.ray, far._opened.key)
