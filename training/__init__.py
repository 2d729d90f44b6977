"""How the embedded models were made, written so that the same can be done for another small model: see README.md."""
