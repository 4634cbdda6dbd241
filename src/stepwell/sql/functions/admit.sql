-- Let the next run of each of these schedules go, where none is live but those that wait for it. Null: of every schedule,
-- for upkeep, should a run have gone in a way that called nobody, or nobody have come to it. Returns how many.
-- The schedule's row is locked, so a tick that puts a run in line and the end of the run before it see each other. Whoever
-- ends a run must not wait for long, though: a row that somebody holds for a quarter of a second is left to upkeep; and a
-- run that somebody holds is being cancelled, by whom the next one is let go.
create or replace function stepwell.admit(_schedule_ids uuid[]) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[] := coalesce(
    _schedule_ids,
    array(select distinct j.schedule_id from stepwell.job j where j.schedule_id is not null and j.state = 'blocked' limit 1000)
  );
  _admitted integer;
  _queues text[];
  _due_in double precision;
begin
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  begin
    perform from stepwell.schedule s where s.id = any (_ids) and s.overlap <> 'allow' order by s.id for no key update;
  exception when lock_not_available then
    return 0;
  end;
  with first as (
    select distinct on (j.schedule_id) j.id
    from stepwell.job j
    where j.schedule_id = any (_ids) and j.state = 'blocked'
      and not exists (
        select from stepwell.job o where o.schedule_id = j.schedule_id and o.state <> 'blocked'
      )
    order by j.schedule_id, j.scheduled_for, j.id
  ), free as materialized (
    select j.id from stepwell.job j
    where j.id in (select f.id from first f) and j.state::text = 'blocked'
    order by j.id
    for no key update skip locked
  ), admitted as (
    update stepwell.job j
    set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
    where j.id in (select f.id from free f)
    returning j.queue, j.state, j.run_at
  )
  select count(*), array_agg(distinct a.queue) filter (where a.state = 'ready'),
    extract(epoch from min(a.run_at) filter (where a.state = 'scheduled') - _now)
  into _admitted, _queues, _due_in
  from admitted a;
  perform stepwell.notify_ready(_queues, _due_in);
  return _admitted;
end
$$;
