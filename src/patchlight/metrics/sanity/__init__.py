"""Does a map depend on what it should depend on, and on nothing else."""
