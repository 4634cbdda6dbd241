-- Fail, as lease_lost, every job that a worker holds and that no other session has locked. Each job is retried at once,
-- if it has attempts left. Returns these jobs; failed is true if the job has failed for good. A job whose parent or
-- children another session has locked too long is left for the next rescue.
create or replace function stepwell.fail_held(_worker_id uuid, _message text, _tasks jsonb)
returns table (job_id uuid, task text, queue text, attempt integer, message text, failed boolean)
language plpgsql volatile
set lock_timeout = '250ms'
as $$
declare
  _ids uuid[];
  _epochs integer[];
  _max_attempts integer[];
  _keeps double precision[];
  _names text[];
  _queues text[];
  _attempts integer[];
  _cancelling boolean[];
  _undoing boolean[];
  _count integer;
  _left uuid[] := '{}';
  _broken uuid[] := '{}';
  _lost record;
begin
  with held as materialized (
    select j.id, j.epoch, j.task, j.queue, j.attempt, j.policy, j.cancelling, j.undoing is not null as undoing
    from stepwell.job j
    where j.worker_id = _worker_id and j.state = 'running'
    for no key update skip locked
  )
  select array_agg(h.id), array_agg(h.epoch),
    array_agg(coalesce((_tasks -> h.task ->> 'max_attempts')::numeric::integer, 20)),
    array_agg(stepwell.keep_failed_of(h.policy, _tasks -> h.task, h.queue)),
    array_agg(h.task), array_agg(h.queue), array_agg(h.attempt), array_agg(h.cancelling), array_agg(h.undoing)
  into _ids, _epochs, _max_attempts, _keeps, _names, _queues, _attempts, _cancelling, _undoing
  from held h;
  _count := coalesce(cardinality(_ids), 0);
  if _count = 0 then
    return;
  end if;
  begin
    perform stepwell.fail(
      _ids, _epochs,
      array_fill('lease_lost'::text, array[_count]), array_fill('LeaseLost'::text, array[_count]),
      array_fill(_message, array[_count]), array_fill(null::text, array[_count]),
      array_fill(0::double precision, array[_count]), _max_attempts, _keeps
    );
  exception when lock_not_available or data_exception or integrity_constraint_violation or program_limit_exceeded then
    for _k in 1 .. _count loop
      begin
        perform stepwell.fail(
          _ids[_k : _k], _epochs[_k : _k], '{lease_lost}', '{LeaseLost}', array[_message], '{null}', '{0}',
          _max_attempts[_k : _k], _keeps[_k : _k]
        );
      exception
        when lock_not_available then
          _left := _left || _ids[_k];
        when data_exception or integrity_constraint_violation or program_limit_exceeded then
          -- A constraint refuses the row of this job. That must not stop the rescue of the others.
          perform stepwell.fail_broken(_ids[_k], format('%s; and it cannot run again: %s', _message, sqlerrm));
          _broken := _broken || _ids[_k];
      end;
    end loop;
  end;
  -- If the cancel of its job was requested, a lost run is in no counter: a tally counts only what failed.
  select array_agg(u.id) as ids, array_agg(u.task) as tasks, array_agg(u.queue) as queues into _lost
  from unnest(_ids, _names, _queues, _cancelling) as u (id, task, queue, cancelling)
  where not u.cancelling and u.id <> all (_left) and u.id <> all (_broken);
  if _lost.ids is not null then
    perform stepwell.note_lost(_lost.ids, _lost.tasks, _lost.queues, 'LeaseLost', _message);
  end if;
  -- A job whose cancel was requested has ended as cancelled. A job whose undo begins here has failed.
  return query
    select u.id, u.task, u.queue, u.attempt, _message,
      not u.cancelling and (j.id is null or j.undoing and not u.undoing)
    from unnest(_ids, _names, _queues, _attempts, _cancelling, _undoing)
      as u (id, task, queue, attempt, cancelling, undoing)
    -- Lateral, so that each job is looked up by its id.
    left join lateral (
      select j.id, j.undoing is not null as undoing from stepwell.job j where j.id = u.id limit 1
    ) j on true
    where u.id <> all (_left);
end
$$;
