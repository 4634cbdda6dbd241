-- Delete expired rows of one table: history_default, failure_default or large_value. Of one only, so that this never holds a
-- lock on both default partitions, in whatever order others take them. Returns how many were deleted.
create or replace function stepwell.prune_rows(_table text, _limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _pruned integer;
begin
  -- The default partitions have no index for this, which would tempt the planner elsewhere: they are all but empty.
  if _table = 'history_default' then
    delete from stepwell.history_default d
    where d.ctid = any (array(
      select e.ctid from stepwell.history_default e where e.expires_at <= _now limit _limit
      for update skip locked
    ));
  elsif _table = 'failure_default' then
    delete from stepwell.failure_default d
    where d.ctid = any (array(
      select e.ctid from stepwell.failure_default e where e.expires_at <= _now limit _limit
      for update skip locked
    ));
  elsif _table = 'large_value' then
    delete from stepwell.large_value d
    where d.ctid = any (array(
      select e.ctid from stepwell.large_value e where e.expires_at <= _now order by e.expires_at limit _limit
      for update skip locked
    ));
  else
    raise exception using errcode = 'invalid_parameter_value',
      message = format('stepwell: %s has no rows to prune: give history_default, failure_default or large_value',
        quote_nullable(_table));
  end if;
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
