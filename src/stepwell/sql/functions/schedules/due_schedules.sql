-- The schedules that are due first, with all that is needed to compute their ticks. due_in is in seconds, zero or less
-- if the schedule is due now. _except: schedules whose ticks the caller could not compute.
create or replace function stepwell.due_schedules(_except uuid[] default '{}', _limit integer default 100)
returns table (
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
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  return query
    select s.id, s.name, s.version, s.cron, s.tz, s.every, s.catchup, s.next_tick_at,
      extract(epoch from s.next_tick_at - _now)::double precision, _now
    from stepwell.schedule s
    where s.next_tick_at is not null and (s.id in (select e.id from unnest(_except) as e (id))) is not true
    order by s.next_tick_at
    limit _limit;
end
$$;
