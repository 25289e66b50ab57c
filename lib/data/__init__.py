"""Text as tokens on disk, and as packed rows."""
