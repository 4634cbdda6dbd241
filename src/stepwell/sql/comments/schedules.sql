comment on table stepwell.schedule is
  'Jobs to enqueue by cron or at an interval. Any worker computes the ticks; stepwell.tick decides under a lock on the '
  'row whether they are fired.';
comment on column stepwell.schedule.owner is 'The name of the app. No app changes the schedules of another.';
comment on column stepwell.schedule.cron is 'The cron expression; null: an interval.';
comment on column stepwell.schedule.overlap is
  'The effect of a tick while a run is live: skip, allow, queue (wait for its end) or replace (cancel it).';
comment on column stepwell.schedule.catchup is 'How many missed ticks are fired, the newest first: 0, 1 or more.';
comment on column stepwell.schedule.jitter is 'Each job is delayed by a random time of up to this many seconds.';
comment on column stepwell.schedule.declared_at is 'When a live worker last declared the schedule.';
comment on column stepwell.schedule.version is 'Grows with each change. Ticks of an older version are refused.';
comment on column stepwell.schedule.paused_at is 'When the schedule was paused; null: it is not paused.';
comment on column stepwell.schedule.next_tick_at is 'The next tick; null: the schedule is paused or has no other tick.';
comment on column stepwell.schedule.forgotten_until is 'Ticks up to then have no record left, and are not fired again.';
comment on column stepwell.schedule.named is 'The app was given a name, so the jobs belong to that owner.';
comment on column stepwell.schedule.max_attempts is 'The attempt limit of the jobs; null: the limit of the task.';
comment on index stepwell.schedule_due is 'Finds due schedules, and the time of the next tick.';

comment on table stepwell.tick is
  'The newest thousand ticks of each schedule, with their jobs. The key prevents firing a tick twice.';
comment on column stepwell.tick.job_id is 'The job that was enqueued; null: none.';
comment on column stepwell.tick.skipped is
  'Why there is no job: overlap (a run was live), missed (catchup is 0) or unique (another job had the unique key).';
