"""Watching a forward pass at the level of torch functions; nothing outside this folder installs anything on a model."""
