"""Methods that read attention maps only."""
