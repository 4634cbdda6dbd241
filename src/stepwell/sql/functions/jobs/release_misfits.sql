-- Make jobs ready that wait because their args did not fit (hold_misfits), if a live worker claims from their queue and
-- has another signature of their task. At most _limit jobs of a task and queue are ready at a time, because the claims
-- of other workers walk over them. Returns how many were made ready, and in how many seconds to try again (null: no
-- more jobs wait). The cost grows with the number of tasks, signatures, queues and owners, not of waiting jobs.
create or replace function stepwell.release_misfits(
  _limit integer default 1000,
  out released integer,
  out again_in double precision
)
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _group record;
  _owners text[];
  _queues text[];
  _places stepwell.place[];
  _part record;
  _keyed uuid[];
  _left integer;
  _room integer;
  _got integer;
begin
  released := 0;
  for _group in
    with recursive kind as (
      (
        select j.task, j.misfits from stepwell.job j
        where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
        order by j.task, j.misfits limit 1
      )
      union all
      select n.task, n.misfits
      from kind k
      cross join lateral (
        select j.task, j.misfits from stepwell.job j
        where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
          and (j.task, j.misfits) > (k.task, k.misfits)
        order by j.task, j.misfits limit 1
      ) n
    )
    select k.task, k.misfits from kind k limit 1000
  loop
    select array_agg(s.owner), array_agg(s.queue) into _owners, _queues
    from (
      select distinct case when w.named then w.owner end as owner, q.name as queue
      from stepwell.worker w
      cross join lateral unnest(w.queues) as q (name)
      where w.lease_until > _now and w.tasks ? _group.task and not (w.signatures && _group.misfits)
    ) s;
    continue when _queues is null;
    _left := _limit;
    -- The walk skips queues and owners that none of these workers serves.
    for _part in
      with recursive part as (
        (
          select j.queue, coalesce(j.owner, '') as owner from stepwell.job j
          where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
            and j.task = _group.task and j.misfits = _group.misfits
          order by j.queue, coalesce(j.owner, '') limit 1
        )
        union all
        select n.queue, n.owner
        from part p
        cross join lateral (
          select j.queue, coalesce(j.owner, '') as owner from stepwell.job j
          where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
            and j.task = _group.task and j.misfits = _group.misfits
            and (j.queue, coalesce(j.owner, '')) > (p.queue, p.owner)
          order by j.queue, coalesce(j.owner, '') limit 1
        ) n
      )
      select p.queue, p.owner
      from (select a.queue, a.owner from part a limit 10000) p
      where exists (
        select from unnest(_owners, _queues) as s (owner, queue)
        where (p.owner = '' or p.owner = s.owner)
          and (s.queue = p.queue or (right(s.queue, 1) = '*' and starts_with(p.queue, left(s.queue, -1))))
      )
    loop
      select least(_left, _limit - count(*)) into _room
      from (
        select from stepwell.job j
        where j.misfits is not null and j.state = 'ready' and j.task = _group.task and j.misfits = _group.misfits
          and j.queue = _part.queue and coalesce(j.owner, '') = _part.owner
        limit _limit
      ) r;
      if _room <= 0 then
        -- The workers that may claim them are busy.
        again_in := least(again_in, 1);
        continue;
      end if;
      with free as materialized (
        select j.id from stepwell.job j
        where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
          and j.task = _group.task and j.misfits = _group.misfits
          and j.queue = _part.queue and coalesce(j.owner, '') = _part.owner
        limit _room
        for no key update skip locked
      ), made as (
        update stepwell.job j
        -- Close to the place that it had before.
        set state = 'ready', run_at = least(j.claimed_at, _now)
        where j.id = any (array(select f.id from free f))
        returning j.id, j.rank, j.run_at, j.admission is not null as keyed
      )
      select count(*), array_agg(row(_part.queue, m.rank, m.run_at)::stepwell.place),
        array_agg(m.id) filter (where m.keyed)
      into _got, _places, _keyed
      from made m;
      if _keyed is not null then
        perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
      end if;
      if _got > 0 then
        perform stepwell.notify_ready(_places, null);
      end if;
      released := released + _got;
      _left := _left - _got;
      if _got = _room then
        again_in := 0.1;
      end if;
      exit when _left <= 0;
    end loop;
  end loop;
end
$$;
