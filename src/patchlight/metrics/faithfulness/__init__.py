"""Does the model answer differently where the map says it should: measured on changed pictures."""
