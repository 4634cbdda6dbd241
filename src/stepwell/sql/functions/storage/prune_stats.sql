-- Delete counters older than _keep. Returns how many.
create or replace function stepwell.prune_stats(_keep interval default '7 days', _limit integer default 10000)
returns integer
language plpgsql volatile security definer
as $$
declare
  _pruned integer;
begin
  delete from stepwell.stat s
  where s.ctid = any (array(
    select o.ctid from stepwell.stat o where o.minute < stepwell.now() - _keep order by o.minute limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
