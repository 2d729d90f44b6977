"""The server behind the viewer: a live model, one queue in front of it, and an HTTP API."""
