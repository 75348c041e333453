"""Four extensions of tapr, one file each."""
