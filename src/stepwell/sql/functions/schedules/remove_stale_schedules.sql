-- Remove the schedules that were declared in code and that no live worker has declared for as long as a live worker of
-- their owner says (stale_after). Old and new code run side by side during a deploy, so a schedule that either declares
-- is not stale. The delay lets a roll-back find the schedule unchanged. Returns the names, each with its owner.
create or replace function stepwell.remove_stale_schedules() returns text[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _stale record;
  _removed text[] := '{}';
begin
  -- Not every time, because each update leaves a dead row. Workers of the same code share a list, which is read once.
  update stepwell.schedule s set declared_at = _now
  where s.id in (
    select d.id from stepwell.schedule d
    where d.declared and d.declared_at < _now - interval '10 seconds'
      and (
        (d.owner, d.name) in (
          select c.owner, n.name
          from (select distinct w.owner, w.schedules from stepwell.worker w where w.lease_until > _now) c
          cross join lateral unnest(c.schedules) as n (name)
        )
      ) is true
      and exists (
        select from stepwell.worker w
        where w.owner = d.owner and w.lease_until > _now
          and d.declared_at < _now - least(60, coalesce(w.stale_after, 60) / 4) * interval '1 second'
      )
    order by d.id
    for update skip locked
  );
  for _stale in
    select s.owner, array_agg(s.name) as names
    from stepwell.schedule s
    where s.declared
      and (
        (s.owner, s.name) in (
          select c.owner, n.name
          from (select distinct w.owner, w.schedules from stepwell.worker w where w.lease_until > _now) c
          cross join lateral unnest(c.schedules) as n (name)
        )
      ) is not true
      and exists (
        select from stepwell.worker w
        where w.owner = s.owner and w.lease_until > _now and s.declared_at <= _now - w.stale_after * interval '1 second'
      )
    group by s.owner
  loop
    _removed := _removed || array(
      select format('%s of %s', r.name, _stale.owner)
      from unnest(stepwell.remove_schedules(_stale.owner, _stale.names, _declared => true)) as r (name)
    );
  end loop;
  return _removed;
end
$$;
