-- Cancel live jobs, and all that descends from them. One that waits ends at once, or is run once more to undo its steps; of
-- one that runs the worker is told, and the job ends when its handler does. Returns a row for each of _ids that was found
-- and is not being undone already, with its state: cancelled; running for those that were asked; ready for those that will be
-- undone.
create or replace function stepwell.cancel(
  _ids uuid[],
  _reason text default null,
  _keep double precision default null
) returns table (id uuid, state stepwell.state)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _all uuid[];
  _undoing uuid[];
  _cancelled uuid[];
  _running uuid[];
  _workers uuid[];
  _schedule_ids uuid[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _ends json;
begin
  if length(_reason) > 10000 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: the reason of a cancel must have at most 10000 characters';
  end if;
  _all := stepwell.lock_family(
    _ids, array(select j.parent_id from stepwell.job j where j.id = any (_ids) and j.parent_id is not null), true
  );

  with asked as (
    update stepwell.job j
    set cancelling = true, reason = coalesce(_reason, j.reason)
    -- worker_id stands for "running" here: the state itself would tempt the planner to the index on running jobs.
    -- What is being undone has failed or been cancelled already.
    where j.id = any (_all) and j.worker_id is not null and j.undoing is null
    returning j.id, j.worker_id
  )
  select array_agg(a.id), array_agg(distinct a.worker_id) into _running, _workers from asked a;
  perform stepwell.notify('stepwell_cancel', w.id::text) from unnest(_workers) as w (id);

  _undoing := stepwell.begin_undo(
    array(select j.id from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable),
    '{cancelled}',
    array(select _reason from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable)
  );

  with gone as (
    delete from stepwell.job j
    where j.id = any (_all) and j.worker_id is null and j.undoing is null
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.epoch, j.attempt, j.max_attempts, j.rank, j.task, j.queue,
      j.args, j.metadata, j.schedule_id, j.scheduled_for, j.reason, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from, j.owner, j.life, j.policy
  ), judged as materialized (
    select g.id, g.run_at, g.enqueued_at, g.claimed_at, g.epoch, g.attempt, g.max_attempts, g.rank, g.task, g.queue,
      g.args, g.metadata, g.schedule_id, g.scheduled_for, g.durable, g.cursor, g.input, g.parent_id, g.parent_key,
      g.forked_from, g.owner, g.life, g.policy, coalesce(_reason, g.reason) as error,
      -- As long as the job itself says, or a worker that knows the task would keep a failure of it.
      coalesce(
        _keep,
        (g.policy ->> 'keep_failed')::double precision,
        (
          select (w.tasks -> g.task ->> 'keep_failed')::double precision from stepwell.worker w
          where w.tasks ? g.task limit 1
        ),
        2592000
      ) as keep
    from gone g
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, epoch, attempt,
      max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error, cursor, input, parent_id,
      parent_key, forked_from, owner, life, policy, steps)
    select g.id, stepwell.expiry(_now, g.keep), _now, g.run_at, g.enqueued_at, g.claimed_at, g.epoch, g.attempt,
      g.max_attempts, g.rank, 'cancelled', g.task, g.queue, g.args, g.metadata, g.schedule_id, g.scheduled_for,
      g.error, g.cursor, g.input, g.parent_id, g.parent_key, g.forked_from, g.owner, g.life, g.policy,
      case when g.durable then stepwell.timeline(g.id) end
    from judged g
    where g.keep > 0
  )
  select array_agg(g.id), array_agg(g.schedule_id) filter (where g.schedule_id is not null),
    array_agg(g.id) filter (where g.durable),
    array_agg(g.id) filter (where g.durable and g.keep > 0),
    array_agg(stepwell.expiry(_now, g.keep)) filter (where g.durable and g.keep > 0),
    json_agg(json_build_object('parent_id', g.parent_id, 'key', g.parent_key, 'child_id', g.id, 'state', 'cancelled',
      'message', g.error)) filter (where g.parent_id is not null)
  into _cancelled, _schedule_ids, _durable, _kept, _expires_ats, _ends
  from judged g;
  if _durable is not null then
    perform stepwell.delete_steps(_durable, _kept, _expires_ats, _durable);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;

  perform stepwell.notify_done(_cancelled);
  return query
    with changed as (
      select c.id, 'cancelled'::stepwell.state as state from unnest(_cancelled) as c (id)
      union all
      select r.id, 'running'::stepwell.state from unnest(_running) as r (id)
      union all
      select u.id, 'ready'::stepwell.state from unnest(_undoing) as u (id)
    )
    select c.id, c.state from changed c
    -- Not as a join, which would compare each with each.
    where (c.id in (select i.id from unnest(_ids) as i (id))) is true;
end
$$;
