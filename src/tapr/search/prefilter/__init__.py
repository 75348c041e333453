"""The first stage of a search in a large gallery: candidates, and bounds that rule out all others.

`candidates` ranks pictures by one vector each, `bound` says how high a picture's score can be by its summary, and
`stage` searches with both. Summaries are part of the gallery: store/summary.py. Measurements:
docs/first_stage.md.
"""
