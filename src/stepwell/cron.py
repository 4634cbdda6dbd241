"""When a schedule is due: cron text in a time zone. Pure: knows no clock and no database."""
