"""Does the map lie on the object: measured against boxes and masks."""
