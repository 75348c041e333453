"""The first stage of a search in a very large gallery: candidates, and a bound that says what cannot be among the best.

`summary` bounds a picture's score from a fraction of its bytes, `engine` finds candidates, `store` keeps both beside a
gallery, `stage` searches with them. docs/scaling.md has the proof and what was measured.
"""
