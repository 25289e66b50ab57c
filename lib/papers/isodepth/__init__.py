"""Iso-depth scaling laws and the exponent phi (000)."""
