"""Residual scaling 1/N (002)."""
