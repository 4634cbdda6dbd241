-- Fail a live job that cannot go on as it is, because its row is refused by a constraint, say: it moves to history as failed,
-- and is not undone. The row is locked by the caller. _admit: let the next run of its schedule go, if it has one; admit itself
-- sees to that by a loop. False: there is no such job.
create or replace function stepwell.fail_broken(_id uuid, _message text, _admit boolean default true) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _expires_at timestamptz := stepwell.expiry(_now, 2592000);
  _job record;
begin
  delete from stepwell.job j where j.id = _id
  returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, j.attempt, j.max_attempts, j.rank, j.task,
    j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.durable, j.cursor, j.input, j.parent_id, j.parent_key,
    j.forked_from, j.owner, j.life, j.policy
  into _job;
  if not found then
    return false;
  end if;
  insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch, attempt,
    max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error, cursor, input, parent_id,
    parent_key, forked_from, owner, life, policy, steps)
  values (_id, _expires_at, _now, _job.run_at, _job.enqueued_at, _job.claimed_at, _job.worker_id, _job.epoch, _job.attempt,
    _job.max_attempts, _job.rank, 'failed', _job.task, _job.queue, _job.args, _job.metadata, _job.schedule_id,
    _job.scheduled_for, left('Broken: ' || _message, 1000), _job.cursor, _job.input, _job.parent_id, _job.parent_key,
    _job.forked_from, _job.owner, _job.life, _job.policy, case when _job.durable then stepwell.timeline(_id) end);
  insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type, message)
  values (_id, _expires_at, _now, _job.claimed_at, _job.worker_id, _job.epoch, _job.attempt, 'broken', 'Broken',
    left(_message, 10000));
  if _job.durable then
    perform stepwell.delete_steps(array[_id], array[_id], array[_expires_at], array[_id]);
    perform stepwell.cancel_children(array[_id]);
  end if;
  if _job.parent_id is not null then
    perform stepwell.end_children(json_build_array(json_build_object('parent_id', _job.parent_id, 'key', _job.parent_key,
      'child_id', _id, 'state', 'failed', 'type', 'Broken', 'message', left(_message, 10000))));
  end if;
  if _admit and _job.schedule_id is not null then
    perform stepwell.admit(array[_job.schedule_id]);
  end if;
  perform stepwell.notify_done(array[_id]);
  return true;
end
$$;
