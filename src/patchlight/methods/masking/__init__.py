"""What the score does when parts of a picture are hidden: all these need of a model is score(images) -> (b, k)."""
