-- Let the next run of each of these schedules go, where none is live but those that wait for it. Null: of every schedule,
-- for upkeep, should a run have gone in a way that called nobody.
-- The schedule's row is locked, so a tick that puts a run in line and the end of the run before it see each other.
create or replace function stepwell.admit(_schedule_ids uuid[]) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[] := coalesce(
    _schedule_ids, array(select distinct j.schedule_id from stepwell.job j where j.schedule_id is not null and j.state = 'blocked')
  );
  _admitted integer;
  _queues text[];
  _due_in double precision;
begin
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  perform from stepwell.schedule s where s.id = any (_ids) and s.overlap <> 'allow' order by s.id for no key update;
  with first as (
    select distinct on (j.schedule_id) j.id
    from stepwell.job j
    where j.schedule_id = any (_ids) and j.state = 'blocked'
      and not exists (
        select from stepwell.job o where o.schedule_id = j.schedule_id and o.state <> 'blocked'
      )
    order by j.schedule_id, j.scheduled_for, j.id
  ), admitted as (
    update stepwell.job j
    set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
    where j.id in (select f.id from first f) and j.state = 'blocked'
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
