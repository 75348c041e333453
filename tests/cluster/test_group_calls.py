"""Asking groups, against a make-believe Ray: copies that are lost, slow, full or leaving, and what a caller sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tapr.cluster import group_calls
from tapr.cluster.actor import ActorRetiring
from tapr.cluster.actor_names import ActorName, key_of
from tapr.cluster.chunked_calls import CHUNK_BYTES, Call, cut, join
from tapr.cluster.group_calls import Groups, LayoutChanged, RetryPolicy, newest_layout
from tapr.errors import BadInput, NewProcessNeeded, Overloaded, TaprError, Unavailable

KEY = key_of("/somewhere")
BOTH = {0: Call(()), 1: Call(())}


class RayError(Exception): ...


class RayActorError(RayError): ...


class ActorUnavailableError(RayActorError): ...


class PendingCallsLimitExceeded(RayError): ...


class FakeRay:
    """Actors are functions; a call is answered when it is waited for, or after some seconds."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError,
        PendingCallsLimitExceeded=PendingCallsLimitExceeded,
    )  # fmt: skip

    def __init__(self, actors: dict[str, Callable[[], Any]], layout: int = 0, groups: int = 2) -> None:
        self.actors = {
            str(ActorName(KEY, 1, layout, int(place[0]), groups, int(place[1]))): work for place, work in actors.items()
        }
        self.calls: list[str] = []
        self.util = SimpleNamespace(
            list_named_actors=lambda all_namespaces: [{"name": n, "namespace": "tapr"} for n in self.actors]
        )

    def get_actor(self, name: str, namespace: str) -> Any:
        if name not in self.actors:
            raise ValueError(name)
        work = self.actors[name]

        def remote(*arguments: Any) -> Any:
            self.calls.append(name)
            if isinstance(work, type) and issubclass(work, PendingCallsLimitExceeded):
                raise work
            return SimpleNamespace(work=work, at=time.monotonic() + getattr(work, "seconds", 0.0), __hash__=None)

        def ping() -> Any:
            never = getattr(work, "silent", False)
            return _Ref(SimpleNamespace(work=lambda: True, at=time.monotonic() + (60 if never else 0)))

        return SimpleNamespace(
            call=SimpleNamespace(remote=lambda *a: _Ref(remote(*a))), ping=SimpleNamespace(remote=ping)
        )

    def wait(self, refs: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        until = time.monotonic() + timeout
        while True:
            ready = [ref for ref in refs if ref.call.at <= time.monotonic()][:num_returns]
            if ready or time.monotonic() >= until:
                return ready, []
            time.sleep(0.001)

    def get(self, ref: Any) -> Any:
        return [piece for one in ref for piece in cut(one.call.work())] if isinstance(ref, list) else ref.call.work()


class _Ref:
    def __init__(self, call: Any) -> None:
        self.call = call


def slow(seconds: float, answer: str) -> Callable[[], str]:
    def work() -> str:
        return answer

    work.seconds = seconds  # type: ignore[attr-defined]
    return work


def raises(error: type[Exception] | Exception) -> Callable[[], Any]:
    def work() -> Any:
        raise error

    return work


def asked(ray: FakeRay, retry_policy: RetryPolicy | None = None) -> tuple[dict[int, Any], dict[int, str]]:
    return Groups(ray, KEY, 1).ask("top_k", BOTH, retry_policy or RetryPolicy(seconds=5), 0)


def test_another_head_needs_another_process() -> None:
    def refuses(all_namespaces: bool) -> Any:
        raise RayError("RPC error: WrongClusterID: Perhaps the client is accessing GCS after it has restarted.")

    ray = FakeRay({"00": raises(RayActorError), "10": lambda: "b"})
    groups = Groups(ray, KEY, 1)
    ray.util.list_named_actors = refuses
    with pytest.raises(NewProcessNeeded, match="start this program again"):
        groups.ask("top_k", BOTH, RetryPolicy(seconds=5), 0)


def test_a_head_that_does_not_answer_is_told() -> None:
    ray = FakeRay({"00": lambda: "a", "10": lambda: "b"})
    ray.util.list_named_actors = lambda all_namespaces: raises(RayError("no route\nto it"))()
    with pytest.raises(Unavailable, match=r"does not answer \(no route\)"):
        Groups(ray, KEY, 1)


def test_every_group_is_asked_once() -> None:
    ray = FakeRay({"00": lambda: "a", "10": lambda: "b", "11": lambda: "b"})
    assert asked(ray) == ({0: "a", 1: "b"}, {})
    assert len(ray.calls) == 2


def test_another_copy_answers_for_one_that_is_lost_or_leaves() -> None:
    for error in (RayActorError, ActorUnavailableError, ActorRetiring):
        ray = FakeRay({"00": lambda: "a", "10": raises(error), "11": lambda: "b"})
        groups = Groups(ray, KEY, 1)
        for _ in range(3):  # whichever copy's turn it is
            assert groups.ask("top_k", BOTH, RetryPolicy(seconds=5), 0) == ({0: "a", 1: "b"}, {})


def test_a_group_without_a_living_copy_is_named_with_the_reason() -> None:
    answers, missing = asked(FakeRay({"00": lambda: "a", "10": raises(RayActorError)}))
    assert answers == {0: "a"}
    assert missing == {1: "its actor died and is being restarted"}
    answers, missing = asked(FakeRay({"00": lambda: "a"}))
    assert missing == {1: "no copy of it lives"}


def test_a_caller_can_wait_for_a_copy_to_come_back() -> None:
    lost = iter([RayActorError, ActorUnavailableError])

    def work() -> str:
        error = next(lost, None)
        if error is not None:
            raise error
        return "b"

    assert asked(FakeRay({"00": lambda: "a", "10": work}), RetryPolicy(seconds=5, missing=5)) == ({0: "a", 1: "b"}, {})


def test_an_answer_that_takes_too_long_is_missing() -> None:
    answers, missing = asked(FakeRay({"00": lambda: "a", "10": slow(60, "b")}), RetryPolicy(seconds=0.2))
    assert (answers, missing) == ({0: "a"}, {1: "it did not answer within 0.2 seconds"})


def silent(answer: str) -> Callable[[], str]:
    """As Ray keeps a call to an actor that it is restarting."""
    work = slow(60, answer)
    work.silent = True  # type: ignore[attr-defined]
    return work


def test_a_copy_that_does_not_answer_a_ping_is_given_up_and_a_slow_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_calls, "_PING_SECONDS", 0.05)
    answers, missing = asked(FakeRay({"00": slow(0.5, "a"), "10": silent("never")}))
    assert (answers, missing) == ({0: "a"}, {1: "its actor gives no sign of life; it may be being restarted"})
    for _ in range(2):  # whichever copy's turn it is
        ray = FakeRay({"00": lambda: "a", "10": silent("never"), "11": slow(0.2, "b")})
        assert asked(ray) == ({0: "a", 1: "b"}, {})


def test_a_slow_copy_is_hedged_by_another() -> None:
    ray = FakeRay({"00": lambda: "a", "10": slow(60, "late"), "11": slow(60, "late")})
    groups = Groups(ray, KEY, 1)
    first = groups.copies(1)[1]  # the one that is asked second, next time
    ray.actors[str(first)] = lambda: "b"
    groups = Groups(ray, KEY, 1)
    assert groups.ask("top_k", {1: Call(())}, RetryPolicy(seconds=5, hedge=0.05), 0) == ({1: "b"}, {})


def test_a_full_queue_is_an_overload_and_errors_of_actors_are_passed_on() -> None:
    with pytest.raises(Overloaded, match="shard group 2 of 2 has as many calls waiting"):
        asked(FakeRay({"00": lambda: "a", "10": PendingCallsLimitExceeded}))
    with pytest.raises(BadInput, match="no such thing"):
        asked(FakeRay({"00": lambda: "a", "10": raises(BadInput("no such thing"))}))

    class Wrapped(RayError, TaprError):  # as Ray raises what an actor raised
        cause = TaprError("the file is gone")

    with pytest.raises(TaprError, match=r"^the file is gone$"):
        asked(FakeRay({"00": lambda: "a", "10": raises(Wrapped())}))


def test_a_restarted_actor_with_the_same_name_is_called_again() -> None:
    ray = FakeRay({"00": lambda: "a", "10": raises(RayActorError)})
    groups = Groups(ray, KEY, 1)
    ray.actors[str(ActorName(KEY, 1, 0, 1, 2, 0))] = lambda: "b"
    assert groups.ask("top_k", BOTH, RetryPolicy(seconds=5), 0) == ({0: "a", 1: "b"}, {})


def test_a_call_is_repeated_after_re_partitioning() -> None:
    ray = FakeRay({"00": lambda: "a", "10": raises(ActorRetiring)})
    groups = Groups(ray, KEY, 1)
    ray.actors = FakeRay({"00": lambda: "a"}, layout=1, groups=1).actors
    with pytest.raises(LayoutChanged):
        groups.ask("top_k", BOTH, RetryPolicy(seconds=5), 0)
    assert groups.shape() == (1, 1)


def test_a_call_that_was_made_for_another_layout_is_not_sent() -> None:
    ray = FakeRay({"00": lambda: "a", "10": lambda: "b"})
    groups = Groups(ray, KEY, 1)
    ray.actors = FakeRay({"00": lambda: "a", "10": lambda: "b", "20": lambda: "c"}, layout=1, groups=3).actors
    assert not groups.look()  # for another search
    with pytest.raises(LayoutChanged):
        groups.ask("top_k", BOTH, RetryPolicy(seconds=5), 0)
    assert ray.calls == []


def test_names() -> None:
    name = ActorName(KEY, 3, 1, 0, 7, 2)
    assert ActorName.parse(str(name)) == name
    assert ActorName.parse("someone else's") is None
    assert key_of("s3://bucket/shop/") == key_of("s3://bucket/shop") != key_of("s3://bucket/shop2")
    half = [ActorName(KEY, 1, 2, 0, 2, 0)]  # group 1 of 2 has none yet
    whole = [ActorName(KEY, 1, 1, group, 3, 0) for group in range(3)]
    assert newest_layout(half + whole) == 1
    assert newest_layout(half) == 2
    assert newest_layout([]) == -1


def test_large_arguments_are_sent_in_chunks() -> None:
    value = ({"a": b"x" * (3 * CHUNK_BYTES)}, 4)
    pieces = cut(value)
    assert [len(piece) <= CHUNK_BYTES for piece in pieces] == [True] * 4
    assert join(pieces) == value
    assert join(cut(value, 2)) == value
    assert len(cut("small")) == 1
    assert Call((), answer_bytes=10**9).returns == 1, "what is huge goes through the object store"
