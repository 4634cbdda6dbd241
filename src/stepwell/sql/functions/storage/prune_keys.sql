-- Delete unique keys whose period is over. Returns how many.
create or replace function stepwell.prune_keys(_limit integer default 10000) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _pruned integer;
begin
  delete from stepwell.unique_key k
  where k.key = any (array(
    select o.key from stepwell.unique_key o
    where not o.live and o.expires_at <= _now
    order by o.expires_at
    limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
