"""When a schedule is due: cron text, intervals, time zones and daylight saving.

Everything here is pure: it knows no clock and no database. `cron_text` checks what people write, `wall_time` finds the
next tick across changes of the clock, `timing` offers both and intervals as one type, and `schedule` holds schedules as
values. Declaring and changing schedules is in `schedules`; firing them is in `worker.upkeep.ticker`.
"""
