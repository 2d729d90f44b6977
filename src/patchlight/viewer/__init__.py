"""What a page shows: explanations and what belongs to them, as one document that `render.page` draws."""
