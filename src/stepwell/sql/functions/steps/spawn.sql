-- Spawn children of running jobs, each once: the step and the child are written together, under the fence. Options as
-- in stepwell.enqueue_many. Returns the ids of the children in order, including those spawned before; null where the
-- fence refused. If the unique key of a child is taken, none is spawned (SW005).
-- A child belongs to _owners[k], or else to the owner of its parent.
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
as $$
declare
  _now timestamptz := stepwell.now();
  _owner text := case when cardinality(_owners) = 1 then _owners[array_lower(_owners, 1)] end;
  _children uuid[];
  _new uuid[];
  _origins stepwell.origin[];
  _holders uuid[];
  _holder uuid;
begin
  if (
    cardinality(_keys) = cardinality(_ids) and array_position(_keys, null) is null
    and cardinality(_ns) = cardinality(_ids) and array_position(_ns, null) is null
    and cardinality(_args) = cardinality(_ids)
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each child needs args, and a step with a key and a position';
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
    select u.id, u.epoch, u.key, u.n, u.child_id, j.owner
    from unnest(_ids, _epochs, _keys, _ns, _children) as u (id, epoch, key, n, child_id)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
  ), saved as (
    insert into stepwell.step (job_id, saved_at, child_id, n, epoch, pending, kind, key)
    select g.id, _now, g.child_id, g.n, g.epoch, true, 'child', g.key from given g
    on conflict (job_id, key) do nothing
    returning child_id
  )
  select array_agg(s.child_id order by u.n), array_agg(coalesce(u.owner, _owner, g.owner) order by u.n),
    array_agg(row(u.id, u.key, null, null, null)::stepwell.origin order by u.n)
  into _new, _owners, _origins
  from unnest(_ids, _keys, _children, _owners) with ordinality as u (id, key, child_id, owner, n)
  left join given g on g.child_id = u.child_id
  left join saved s on s.child_id = u.child_id;
  if array_remove(_new, null) <> '{}' then
    _holders := stepwell.take_keys_of(_now, _new, _policies);
    if _holders is not null then
      _holder := (array_remove(_holders, null))[1];
      raise exception using errcode = 'SW005', detail = _holder,
        message = case
          when _holder = any (_new) then 'stepwell: two children have the same unique key'
          else format('stepwell: job %s has the unique key of a child', _holder)
        end;
    end if;
    perform stepwell.insert_jobs(
      _now, _new, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners, _policies,
      _origins
    );
  end if;
  if _new = _children then
    return _children;
  end if;
  -- Some were refused, or had been spawned before. Lateral: each step is looked up by its key.
  return array(
    select s.child_id
    from unnest(_ids, _epochs, _keys) with ordinality as u (id, epoch, key, n)
    left join lateral (
      select j.id from stepwell.job j where j.id = u.id and j.epoch = u.epoch and j.worker_id is not null offset 0
    ) j on true
    left join lateral (
      select s.child_id from stepwell.step s where s.job_id = j.id and s.key = u.key offset 0
    ) s on true
    order by u.n
  );
end
$$;
