-- End jobs that succeeded or were cancelled: out of stepwell.job, into stepwell.history, in one statement.
-- Returns the ids that were refused: the fence (id, epoch) found no running row, so somebody else has the job.
-- _keeps is in seconds: 0 keeps no row, infinity keeps it for ever. _parent_ids: the jobs that spawned some of them.
-- An option is null, one element (the same for all) or one element per job.
-- A job that was being undone ends as was said when that began.
create or replace function stepwell.finish(
  _ids uuid[],
  _epochs integer[],
  _results text[],
  _keeps double precision[],
  _states stepwell.state[] default '{succeeded}',
  _errors text[] default null,
  _parent_ids uuid[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _keep double precision := case when cardinality(_keeps) = 1 then _keeps[1] end;
  _state stepwell.state := case when cardinality(_states) = 1 then _states[1] end;
  _undoing uuid[] := '{}';
  _accepted uuid[];
  _schedule_ids uuid[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _unsuccessful uuid[];
  _ends json;
begin
  if (
    _states <@ array['succeeded', 'cancelled']::stepwell.state[] and cardinality(_states) in (1, cardinality(_ids))
    and array_position(_keeps, null) is null and cardinality(_keeps) in (1, cardinality(_ids))
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: finish needs the time to keep, and succeeded or cancelled: one for all jobs, or one for each';
  end if;
  if pg_column_size(_results) > 65536 then
    perform stepwell.check_sizes('result', _results);
  end if;
  if 'cancelled' = any (_states) then
    _undoing := stepwell.begin_cancelled_undo(_ids, _epochs, _states, _errors, _parent_ids);
  elsif _parent_ids is not null then
    perform stepwell.lock_family(_ids, _parent_ids, false);
  end if;
  with outcome as (
    select u.id, u.epoch, u.result, coalesce(u.keep, _keep) as keep, coalesce(u.state, _state) as state, u.error
    from unnest(_ids, _epochs, _results, _keeps, _states, _errors) as u (id, epoch, result, keep, state, error)
    where u.id is not null
    order by u.id
  ), gone as (
    -- worker_id stands for "running" here: the state itself would tempt the planner to the index on running jobs.
    delete from stepwell.job j
    using outcome o
    where j.id = any (_ids) and j.id = o.id and j.epoch = o.epoch and j.worker_id is not null
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, j.attempt, j.max_attempts, j.rank,
      j.task, j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from, j.owner, j.life, j.policy, o.keep,
      case when j.undoing is null then o.result end as result,
      coalesce((j.undoing ->> 'state')::stepwell.state, o.state) as state, j.undoing ->> 'failed_step' as failed_step,
      j.undoing ->> 'type' as type, j.undoing ->> 'message' as message,
      case
        when j.undoing is not null then j.undoing ->> 'error'
        when o.state = 'cancelled' then coalesce(left(o.error, 10000), j.reason)
      end as error
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, result, error, cursor,
      input, parent_id, parent_key, forked_from, owner, life, policy, failed_step, steps)
    select g.id, stepwell.expiry(_now, g.keep), _now, g.run_at, g.enqueued_at, g.claimed_at, g.worker_id, g.epoch,
      g.attempt, g.max_attempts, g.rank, g.state, g.task, g.queue, g.args, g.metadata, g.schedule_id, g.scheduled_for,
      g.result::json, g.error, g.cursor, g.input, g.parent_id, g.parent_key, g.forked_from, g.owner, g.life, g.policy,
      g.failed_step,
      case when g.durable then (
        select json_agg(f.folded order by f.n) from stepwell.folded_steps f where f.job_id = g.id
      ) end
    from gone g
    where g.keep > 0
  )
  select array_agg(g.id), array_agg(g.schedule_id) filter (where g.schedule_id is not null),
    array_agg(g.id) filter (where g.durable),
    array_agg(g.id) filter (where g.durable and g.keep > 0),
    array_agg(stepwell.expiry(_now, g.keep)) filter (where g.durable and g.keep > 0),
    array_agg(g.id) filter (where g.durable and g.state <> 'succeeded'),
    json_agg(json_build_object('parent_id', g.parent_id, 'key', g.parent_key, 'child_id', g.id, 'state', g.state,
      'result', g.result, 'type', g.type, 'message', coalesce(g.message, g.error))) filter (where g.parent_id is not null)
  into _accepted, _schedule_ids, _durable, _kept, _expires_ats, _unsuccessful, _ends
  from gone g;
  if _durable is not null then
    perform stepwell.delete_steps(_durable, _kept, _expires_ats, _unsuccessful);
  end if;
  if _unsuccessful is not null or cardinality(_undoing) > 0 then
    perform stepwell.cancel_children(coalesce(_unsuccessful, '{}') || _undoing);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;
  perform stepwell.notify_done(_accepted);
  if cardinality(_accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_accepted || _undoing) as a (id));
end
$$;
