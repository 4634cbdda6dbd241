-- Delete groups of failures that were last seen more than _keep seconds ago, and hours that no page shows any more. A
-- task that has room for groups again takes new ones. Returns how many rows it deleted.
create or replace function stepwell.prune_failures(
  _keep double precision default 7776000,
  _limit integer default 10000
) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _groups integer;
  _hours integer;
begin
  delete from stepwell.failure_group g
  where g.fingerprint = any (array(
    select o.fingerprint from stepwell.failure_group o
    where o.last_at < _now - least(greatest(_keep, 0), 3155760000) * interval '1 second'
      -- Not "exists": for want of an index, that could read all tallies for each group.
      and o.fingerprint not in (select t.fingerprint from stepwell.failure_tally t)
    limit _limit
    for update skip locked
  ));
  get diagnostics _groups = row_count;
  delete from stepwell.failure_hour h
  where (h.fingerprint, h.hour) in (
    select o.fingerprint, o.hour from stepwell.failure_hour o where o.hour < _now - interval '25 hours' limit _limit
  );
  get diagnostics _hours = row_count;
  update stepwell.failure_group g set is_full = false
  where g.fingerprint = any (array(
    select o.fingerprint from stepwell.failure_group o
    where o.is_full and (
      select count(*) from (select from stepwell.failure_group c where c.task = o.task limit 150) n
    ) < 150
    for no key update skip locked
  ));
  return _groups + _hours;
end
$$;
