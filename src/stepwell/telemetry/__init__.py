"""What happens in a worker, as values, and how each reads in the log."""
