-- Delete expired events, except those whose large value steps or history still refer to. Returns how many.
create or replace function stepwell.prune_events(_limit integer default 10000) returns integer
language plpgsql volatile security definer
as $$
declare
  _forgotten integer;
begin
  delete from stepwell.event e
  where e.id = any (array(
    select x.id from stepwell.event x
    where x.expires_at <= stepwell.now() and x.late is null
      and (x.kept_until is null or x.kept_until <= stepwell.now())
      and not (x.large and exists (select from stepwell.step s where s.large and s.event_id = x.id))
    order by x.expires_at
    limit _limit
    for update skip locked
  ));
  get diagnostics _forgotten = row_count;
  return _forgotten;
end
$$;
