"""Matching: a compiled query against every picture of a bank."""

from tapr.match.choose import choose_kernel, kernel_report
from tapr.match.sweep import score, score_many
from tapr.match.topk import TopK, top_k, top_k_many

__all__ = ["TopK", "choose_kernel", "kernel_report", "score", "score_many", "top_k", "top_k_many"]
