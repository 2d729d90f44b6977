"""Methods that join attention, tokens or pixels with gradients."""
