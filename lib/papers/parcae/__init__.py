"""Parcae, stable looping (001)."""
