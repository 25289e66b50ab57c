"""The looped nanochat log (003)."""
