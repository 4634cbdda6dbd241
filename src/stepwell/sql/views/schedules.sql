-- The schedules with their next and last runs.
create or replace view stepwell.schedules as
select s.id, s.owner, s.name, s.task, s.args, s.queue, -s.rank::integer as priority, s.cron, s.tz, s.every, s.overlap,
  s.catchup, s.jitter, s.declared, s.version, s.created_at, s.paused_at, s.next_tick_at as next_run_at,
  s.last_tick_at as last_run_at, s.last_job_id,
  -- Both values, because the index on the runs of a schedule begins with this expression.
  (
    select count(*) from stepwell.job j
    where (j.state = 'blocked') = any ('{false,true}') and j.schedule_id = s.id
  ) as live, s.metadata, s.max_attempts,
  case when s.policy -> 'headers' is null then s.policy else nullif(s.policy::jsonb - 'headers', '{}')::json end
    as policy
from stepwell.schedule s;

comment on view stepwell.schedules is
  'Schedules with their next and last runs; live: the number of runs that have not ended.';
