"""The progress bar: what it says of the rate and of the time that is left."""

from __future__ import annotations

from tapr.cli.terminal import ProgressBar


def test_the_first_estimate_waits_for_two_batches_and_counts_from_the_start() -> None:
    now = [100.0]
    with ProgressBar(clock=lambda: now[0]) as bar:
        bar.start(1616, "encoding")
        now[0] += 4
        bar.advance(16)
        assert bar.pace == ""
        now[0] += 0.001  # the second batch ends with the first one: that says nothing of the rate
        bar.advance(16)
        assert bar.pace == "8.0/s 0:03:18"
        now[0] += 15.999
        bar.advance(384)
        assert bar.pace == "21/s 0:00:58"


def test_each_kind_of_work_has_its_own_estimate() -> None:
    now = [0.0]
    with ProgressBar(clock=lambda: now[0]) as bar:
        for what, seconds, told in (("encoding", 10.0, "4.0/s 0:00:20"), ("summarising", 1.0, "40/s 0:00:02")):
            bar.start(120, what)
            assert bar.pace == ""
            for _ in range(2):
                now[0] += seconds / 2
                bar.advance(20)
            assert bar.pace == told
