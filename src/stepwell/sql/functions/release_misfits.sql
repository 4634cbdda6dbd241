-- Make jobs ready that wait because their args did not fit (hold_misfits), where a live worker that claims from their queue
-- has another signature of their task than those that refused them. No more than _limit of one task are ready at a time: the
-- claims of other workers walk over them. Returns how many were made ready, and whether there may be more.
-- What it costs goes by how many tasks and signatures there are, not by how many jobs wait.
create or replace function stepwell.release_misfits(
  _limit integer default 1000,
  out released integer,
  out more boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  _now timestamptz := stepwell.now();
  _group record;
  _owners text[];
  _queues text[];
  _room integer;
  _picked uuid[];
  _ready text[];
  _got integer;
begin
  released := 0;
  more := false;
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
    select _limit - count(*) into _room
    from (
      select from stepwell.job j
      where j.misfits is not null and j.state = 'ready' and j.task = _group.task and j.misfits = _group.misfits
      order by j.task, j.misfits limit _limit
    ) r;
    if _room <= 0 then
      more := true;
      continue;
    end if;
    _picked := array(
      select f.id
      from (
        select j.id, j.queue, j.owner from stepwell.job j
        where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
          and j.task = _group.task and j.misfits = _group.misfits
        order by j.task, j.misfits, j.queue
        -- Those of queues that none of them claims from must not be walked over without end.
        limit 10 * _limit
      ) f
      where exists (
        select from unnest(_owners, _queues) as s (owner, queue)
        where (f.owner is null or f.owner = s.owner)
          and (s.queue = f.queue or (right(s.queue, 1) = '*' and starts_with(f.queue, left(s.queue, -1))))
      )
      limit _room
    );
    with free as materialized (
      select j.id from stepwell.job j
      where j.id = any (_picked) and j.state::text = 'scheduled' and j.run_at = j.misfit_until
      order by j.id
      for no key update skip locked
    ), made as (
      update stepwell.job j
      -- About where it stood before.
      set state = 'ready', run_at = least(j.claimed_at, _now)
      where j.id = any (array(select f.id from free f))
      returning j.queue
    )
    select count(*), array_agg(distinct m.queue) into _got, _ready from made m;
    released := released + _got;
    more := more or cardinality(_picked) = _room;
    perform stepwell.notify_ready(_ready, null);
  end loop;
end
$$;
