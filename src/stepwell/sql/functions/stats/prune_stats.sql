-- Delete counters older than _keep, their sums over hours when they are a day older, and their other sums when they are
-- older than two days, at most _limit of each. Returns how many rows it deleted.
create or replace function stepwell.prune_stats(_keep interval default '7 days', _limit integer default 10000)
returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _pruned integer;
  _sums integer;
begin
  delete from stepwell.stat s
  where s.ctid = any (array(
    select o.ctid from stepwell.stat o where o.minute < _now - _keep order by o.minute limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  delete from stepwell.stat_sum s
  where s.ctid = any (array(
    select o.ctid
    from (
      values (1, _now - interval '2 days 1 hour'), (5, _now - interval '2 days 1 hour'),
        (60, _now - _keep - interval '1 day'), (360, _now - _keep - interval '1 day')
    ) as k (minutes, until)
    cross join lateral (
      select o.ctid from stepwell.stat_sum o
      where o.minutes = k.minutes and o.since < k.until
      order by o.since
      limit _limit
    ) o
    limit _limit
  ));
  get diagnostics _sums = row_count;
  return _pruned + _sums;
end
$$;
