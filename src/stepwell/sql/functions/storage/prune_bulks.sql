-- Delete bulk operations that ended longer ago than _keep. Returns how many.
create or replace function stepwell.prune_bulks(_keep interval default '30 days', _limit integer default 10000)
returns integer
language plpgsql volatile security definer
as $$
declare
  _pruned integer;
begin
  delete from stepwell.bulk b
  where b.id = any (array(
    select o.id from stepwell.bulk o
    where o.finished_at < stepwell.now() - _keep
    order by o.id
    limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
