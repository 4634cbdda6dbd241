-- Delete expired rows of one table: history_default, failure_default or large_value. Only one, so that a transaction
-- never holds locks on both default partitions, in whichever order others take them. Returns how many.
create or replace function stepwell.prune_rows(_table text, _limit integer default 10000) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _pruned integer;
begin
  -- The default partitions are nearly empty, and have no index for this, which other plans might use.
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
