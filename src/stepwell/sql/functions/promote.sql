-- Make due jobs ready, in the order of their times: those that were put off, and those that wait and whose time has come.
-- Returns how many, and in how many seconds the next one is due (0: more are due already; null: none).
create or replace function stepwell.promote(_limit integer default 5000, out promoted integer, out next_due double precision)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  _now timestamptz := stepwell.now();
  _queues text[];
  _durable uuid[];
  _unsure uuid[];
begin
  with due as materialized (
    select j.ctid, j.id, j.state = 'waiting' and j.unsure is not null as unsure
    from stepwell.job j
    where j.state in ('scheduled', 'waiting') and j.run_at <= _now
    order by j.run_at
    limit _limit
    for no key update skip locked
  ), made as (
    update stepwell.job j
    set state = 'ready'
    where j.ctid = any (array(select d.ctid from due d where not d.unsure))
    returning j.id, j.queue, j.durable
  )
  select count(*), array_agg(distinct m.queue), array_agg(m.id) filter (where m.durable),
    array(select d.id from due d where d.unsure)
  into promoted, _queues, _durable, _unsure
  from made m;
  if cardinality(_unsure) > 0 then
    perform stepwell.look_again(_unsure);
  end if;
  if _durable is not null then
    perform stepwell.end_waits(_durable);
  end if;
  perform stepwell.notify_ready(_queues, null);
  select greatest(0, extract(epoch from j.run_at - _now)) into next_due
  from stepwell.job j where j.state in ('scheduled', 'waiting') and j.run_at < 'infinity' order by j.run_at limit 1;
end
$$;
