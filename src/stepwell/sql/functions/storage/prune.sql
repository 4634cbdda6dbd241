-- Drop the partitions whose day is over, and delete some expired rows elsewhere, as stepwell.prune_rows does. Returns
-- the names of the dropped partitions. A partition that another session reads is left for the next round.
create or replace function stepwell.prune(_limit integer default 10000) returns text[]
language plpgsql volatile security definer
set lock_timeout = '1s'
set timezone = 'UTC'
as $$
declare
  _now timestamptz := stepwell.now();
  _name text;
  _dropped text[] := '{}';
begin
  begin
    -- As in stepwell.lock_partitions, but without waiting: the next round tries again.
    lock table only stepwell.history in share update exclusive mode nowait;
  exception when lock_not_available then
    return _dropped;
  end;
  for _name in
    select c.relname
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent in ('stepwell.history'::regclass, 'stepwell.failure'::regclass)
      and c.relname ~ '_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD')::timestamptz + interval '1 day' <= _now
    order by c.relname
    limit 100
  loop
    begin
      execute format('drop table stepwell.%I', _name);
      _dropped := _dropped || _name;
    exception when lock_not_available then
      exit; -- a reader of one partition reads the parent, and would block the next drop, too
    end;
  end loop;
  -- All three only here, where no other session can be creating partitions.
  foreach _name in array array['history_default', 'failure_default', 'large_value'] loop
    perform stepwell.prune_rows(_name, _limit);
  end loop;
  return _dropped;
end
$$;
