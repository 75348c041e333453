"""The names under which the definition of the score is public; score/definition.py is what they name."""

from tapr.score.definition import heat_maps, late_interaction, probe_scores, score, soft_match, term_scores

__all__ = ["heat_maps", "late_interaction", "probe_scores", "score", "soft_match", "term_scores"]
