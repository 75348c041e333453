"""Indexing: from sources of pictures to the vectors of a gallery."""
