-- Forget all but the newest _keep ticks of each schedule. Returns how many.
create or replace function stepwell.prune_ticks(_keep integer default 1000, _limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _pruned integer;
begin
  with old as (
    select t.schedule_id, t.at
    from stepwell.schedule s
    cross join lateral (
      select k.at from stepwell.tick k where k.schedule_id = s.id order by k.at desc offset _keep limit 1
    ) newest
    join stepwell.tick t on t.schedule_id = s.id and t.at <= newest.at
    limit _limit
  )
  delete from stepwell.tick t using old o where t.schedule_id = o.schedule_id and t.at = o.at;
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
