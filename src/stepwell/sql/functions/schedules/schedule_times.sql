-- A page of the schedules that are not paused, with ids above _after. Their next tick is computed from looked_at.
create or replace function stepwell.schedule_times(_after uuid default null, _limit integer default 500) returns table (
  id uuid,
  name text,
  version integer,
  cron text,
  tz text,
  every double precision,
  catchup integer,
  due_at timestamptz,
  due_in double precision,
  looked_at timestamptz
)
language sql volatile security definer
as $$
  select s.id, s.name, s.version, s.cron, s.tz, s.every, s.catchup, s.next_tick_at,
    extract(epoch from s.next_tick_at - stepwell.now())::double precision, stepwell.now()
  from stepwell.schedule s
  where s.paused_at is null and (_after is null or s.id > _after)
  order by s.id
  limit _limit
$$;
