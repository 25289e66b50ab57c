"""Looped-MoE with early exit (004)."""
