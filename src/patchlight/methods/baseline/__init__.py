"""What any method must beat."""
