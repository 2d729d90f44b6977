"""What everything else rests on: errors, the registry, layouts, pictures, grids, batches."""
