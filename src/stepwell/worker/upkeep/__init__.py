"""What workers do for all: promote, rescue, prune, fire schedules."""
