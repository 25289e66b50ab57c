"""Generation with a cache, and leaving the loop early."""
