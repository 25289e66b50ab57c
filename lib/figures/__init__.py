"""One look for every figure, and the picture of a model."""
