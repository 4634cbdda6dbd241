"""The plain values that every room passes around: jobs, steps, outcomes, policies, durations."""
