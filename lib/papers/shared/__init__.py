"""What the studies of several papers use."""
