"""Downstream suites: their examples, what is asked of a model, and lm-eval."""
