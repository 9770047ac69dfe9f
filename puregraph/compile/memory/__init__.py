"""Memory planning: one arena, the offset of each buffer, and calls that overwrite their arguments."""
