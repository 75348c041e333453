"""Picture files: bytes to upright RGB pixels, within a memory budget."""
