"""Other groups' published runs, asked what 000 asks of its own."""
