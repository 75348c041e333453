from tapr.utils.lru import LRU


def test_the_least_recently_used_value_is_dropped() -> None:
    cache: LRU[str, int] = LRU(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1  # now "b" is the oldest
    cache.put("c", 3)
    assert list(cache) == ["a", "c"]
    assert cache.get("b") is None


def test_sizes_are_counted_and_given_back() -> None:
    cache: LRU[str, bytes] = LRU(10, len)
    cache.put("a", b"12345678")
    cache.put("a", b"1234")  # replaces the first, and its size
    cache.put("b", b"123456")
    assert list(cache) == ["a", "b"]
    cache.put("c", b"1")
    assert list(cache) == ["b", "c"]
    assert cache.pop("b") == b"123456"
    cache.put("d", b"123456789")
    assert list(cache) == ["c", "d"]
    cache.put("e", b"more than ten bytes")  # larger than the whole cache: nothing stays
    assert not len(cache)


def test_a_value_is_made_once() -> None:
    cache: LRU[str, list[int]] = LRU(None)
    made = cache.get_or_make("a", lambda: [1])
    assert cache.get_or_make("a", lambda: [2]) is made
    cache.clear()
    assert cache.get_or_make("a", lambda: [2]) == [2]
