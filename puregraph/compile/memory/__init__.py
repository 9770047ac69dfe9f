"""Memory planning: one arena, which buffer is where, and which call may write over what it reads."""
