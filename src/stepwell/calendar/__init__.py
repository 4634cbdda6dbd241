"""When a schedule is due: cron, intervals, wall clocks. Pure."""
