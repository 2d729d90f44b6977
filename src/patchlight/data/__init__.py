"""Data sets, one file each: found on disk, never fetched."""
