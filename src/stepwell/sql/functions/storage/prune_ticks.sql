-- Delete all but the newest _keep ticks of each schedule, and note up to which time. Returns how many.
create or replace function stepwell.prune_ticks(_keep integer default 1000, _limit integer default 10000)
returns integer
language plpgsql volatile security definer
as $$
declare
  _pruned integer;
begin
  with long as materialized (
    select s.id, newest.at
    from stepwell.schedule s
    cross join lateral (
      select k.at from stepwell.tick k where k.schedule_id = s.id order by k.at desc offset _keep limit 1
    ) newest
    order by s.id
    for update of s skip locked
  ), old as (
    select t.schedule_id, t.at
    from long l
    join stepwell.tick t on t.schedule_id = l.id and t.at <= l.at
    order by t.schedule_id, t.at
    limit _limit
  ), gone as (
    delete from stepwell.tick t using old o where t.schedule_id = o.schedule_id and t.at = o.at
    returning t.schedule_id, t.at
  ), forgotten as (
    update stepwell.schedule s set forgotten_until = greatest(s.forgotten_until, g.at)
    from (select o.schedule_id, max(o.at) as at from old o group by o.schedule_id) g
    where s.id = g.schedule_id
  )
  select count(*) into _pruned from gone;
  return _pruned;
end
$$;
