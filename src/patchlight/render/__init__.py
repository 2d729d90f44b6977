"""Showing maps: colours, overlays on the photo, contact sheets; this is where raw scores are normalised."""
