"""Who writes: what is known of them, kept at hand, and asked of their platforms beside the path of a message."""
