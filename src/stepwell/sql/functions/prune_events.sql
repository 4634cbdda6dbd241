-- Forget expired events. Returns how many.
create or replace function stepwell.prune_events(_limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _forgotten integer;
begin
  delete from stepwell.event e
  where e.id = any (array(
    select x.id from stepwell.event x where x.expires_at <= stepwell.now() and x.late is null order by x.expires_at limit _limit
    for update skip locked
  ));
  get diagnostics _forgotten = row_count;
  return _forgotten;
end
$$;
