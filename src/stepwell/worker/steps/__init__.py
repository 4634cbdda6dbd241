"""Save steps, and run handlers in transactions."""
