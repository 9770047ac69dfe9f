"""What everything else stands on: locks, signals, environment variables, budgets, aligned memory, attribute checks."""
