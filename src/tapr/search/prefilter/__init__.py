"""The first stage of a search in a very large gallery: candidates, and a bound that excludes all others.

`summary` bounds a picture's score from a fraction of its bytes, `engine` finds candidates, `store` keeps both beside a
gallery, and `stage` searches with them. The proof and measurements are in docs/scaling.md.
"""
