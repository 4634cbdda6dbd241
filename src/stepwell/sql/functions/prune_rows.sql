-- Delete what has expired in the default partitions and among large values, no more than _limit rows. Returns how many.
create or replace function stepwell.prune_rows(_limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _pruned integer := 0;
  _count integer;
begin
  delete from stepwell.history_default d
  where d.ctid = any (array(
    select e.ctid from stepwell.history_default e where e.expires_at <= _now order by e.expires_at limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  delete from stepwell.failure_default d
  where d.ctid = any (array(
    select e.ctid from stepwell.failure_default e where e.expires_at <= _now order by e.expires_at limit _limit - _pruned
    for update skip locked
  ));
  get diagnostics _count = row_count;
  _pruned := _pruned + _count;
  delete from stepwell.large_value d
  where d.ctid = any (array(
    select e.ctid from stepwell.large_value e where e.expires_at <= _now order by e.expires_at limit _limit - _pruned
    for update skip locked
  ));
  get diagnostics _count = row_count;
  return _pruned + _count;
end
$$;
