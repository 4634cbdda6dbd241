-- The names of queues after _after, in order: those with live jobs, a pause, a setting, or a worker that claims from
-- them. Each index is skipped through from name to name, so the cost depends on the number of names, not of jobs.
create or replace function stepwell.queue_names(_after text, _limit integer) returns text[]
language plpgsql stable
as $$
declare
  _from text := coalesce(_after, '');
begin
  return (
    with recursive ready as (
      select (
        select j.queue from stepwell.job j where j.state = 'ready' and j.queue > _from order by j.queue limit 1
      ) as name, 1 as n
      union all
      select (
        select j.queue from stepwell.job j where j.state = 'ready' and j.queue > r.name order by j.queue limit 1
      ), r.n + 1
      from ready r
      where r.name is not null and r.n < _limit
    ), resting as (
      select s.state, (
        select j.queue from stepwell.job j
        where j.state in ('scheduled', 'waiting', 'blocked') and j.state = s.state and j.queue > _from
        order by j.state, j.queue
        limit 1
      ) as name, 1 as n
      from unnest('{scheduled,waiting,blocked}'::stepwell.state[]) as s (state)
      union all
      select r.state, (
        select j.queue from stepwell.job j
        where j.state in ('scheduled', 'waiting', 'blocked') and j.state = r.state and j.queue > r.name
        order by j.state, j.queue
        limit 1
      ), r.n + 1
      from resting r
      where r.name is not null and r.n < _limit
    )
    select coalesce(array_agg(f.name order by f.name), '{}')
    from (
      select a.name
      from (
        select r.name from ready r
        union
        select r.name from resting r
        union
        select j.queue from (
          select j.queue from stepwell.job j where j.state = 'running' order by j.worker_id limit 10000
        ) j
        union
        select c.name from stepwell.control c where c.action = 'pause' and c.scope = 'queue'
        union
        select s.name from stepwell.queue_setting s
        union
        select q.name from stepwell.worker w cross join lateral unnest(w.queues) as q (name)
        where right(q.name, 1) <> '*'
      ) a
      where a.name > _from
      order by a.name
      limit _limit
    ) f
  );
end
$$;
