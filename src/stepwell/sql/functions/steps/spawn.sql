-- Put the children of running jobs in, each once: the step and the child are written together, under the fence. Options
-- as for enqueue_many. Returns the children's ids in order, also of those that were there before; null where the fence
-- refused. The children belong to _owners[k], or else to the owner of their parent.
create or replace function stepwell.spawn(
  _ids uuid[],
  _epochs integer[],
  _keys text[],
  _ns integer[],
  _tasks text[],
  _args text[],
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null,
  _owners text[] default null,
  _policies text[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _children uuid[];
  _put integer;
  _places stepwell.place[];
  _due_in double precision;
begin
  if (
    cardinality(_keys) = cardinality(_ids) and array_position(_keys, null) is null
    and cardinality(_ns) = cardinality(_ids) and array_position(_ns, null) is null
    and cardinality(_args) = cardinality(_ids)
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each child needs args, and a step with a key and its place';
  end if;
  perform stepwell.check_options(
    _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners
  );
  if _policies is not null then
    perform stepwell.check_policies(_policies, cardinality(_ids));
  end if;
  _children := stepwell.uuids7(cardinality(_ids));
  perform from stepwell.job j
  where j.id = any (_ids) and j.worker_id is not null
  order by j.id
  for no key update;
  update stepwell.job j set durable = true where j.id = any (_ids) and j.worker_id is not null and not j.durable;
  with given as materialized (
    select u.id, u.epoch, u.key, u.n, u.child_id, coalesce(u.task, _tasks[1]) as task, u.args,
      coalesce(u.queue, case when cardinality(_queues) = 1 then _queues[1] end, 'default') as queue,
      coalesce(u.priority, case when cardinality(_priorities) = 1 then _priorities[1] end, 0) as priority,
      coalesce(_now + coalesce(u.delay, case when cardinality(_delays) = 1 then _delays[1] end) * interval '1 second',
        u.run_at, case when cardinality(_run_ats) = 1 then _run_ats[1] end, _now) as run_at,
      coalesce(u.metadata, case when cardinality(_metadata) = 1 then _metadata[1] end) as metadata,
      coalesce(u.max_attempts, case when cardinality(_max_attempts) = 1 then _max_attempts[1] end) as max_attempts,
      coalesce(u.owner, case when cardinality(_owners) = 1 then _owners[1] end, j.owner) as owner,
      coalesce(u.policy, case when cardinality(_policies) = 1 then _policies[1] end) as policy
    from unnest(_ids, _epochs, _keys, _ns, _children, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata,
      _max_attempts, _owners, _policies)
      as u (id, epoch, key, n, child_id, task, args, queue, priority, delay, run_at, metadata, max_attempts, owner, policy)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
  ), saved as (
    insert into stepwell.step (job_id, saved_at, child_id, n, epoch, pending, kind, key)
    select g.id, _now, g.child_id, g.n, g.epoch, true, 'child', g.key from given g
    on conflict (job_id, key) do nothing
    returning child_id
  ), put as (
    insert into stepwell.job (id, run_at, enqueued_at, max_attempts, rank, state, task, queue, args, metadata, parent_id,
      parent_key, owner, policy)
    select g.child_id, g.run_at, _now, g.max_attempts, -g.priority,
      case when g.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      g.task, g.queue, g.args::json, g.metadata::jsonb, g.id, g.key, g.owner, g.policy::json
    from given g
    join saved s on s.child_id = g.child_id
    returning queue, rank, state, run_at
  )
  select count(*), array_agg(row(p.queue, p.rank, p.run_at)::stepwell.place) filter (where p.state = 'ready'),
    extract(epoch from min(p.run_at) filter (where p.state = 'scheduled') - _now)
  into _put, _places, _due_in
  from put p;
  perform stepwell.notify_ready(_places, _due_in);
  if _put = cardinality(_ids) then
    return _children;
  end if;
  -- Some were refused, or had been spawned before. Lateral, so that each is looked up by its key: a parent may have many.
  return array(
    select s.child_id
    from unnest(_ids, _epochs, _keys) with ordinality as u (id, epoch, key, place)
    left join lateral (
      select j.id from stepwell.job j where j.id = u.id and j.epoch = u.epoch and j.worker_id is not null offset 0
    ) j on true
    left join lateral (
      select s.child_id from stepwell.step s where s.job_id = j.id and s.key = u.key offset 0
    ) s on true
    order by u.place
  );
end
$$;
