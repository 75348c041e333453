"""A gallery on disk: snapshots, catalogue, shards, writes, filters, checksums."""
