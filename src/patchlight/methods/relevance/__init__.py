"""Relevance propagation: one walk over the operations of a forward pass, and one table of rules for each method."""
