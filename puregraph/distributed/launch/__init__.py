"""Start a script on several processes, watch them, and end them together."""
