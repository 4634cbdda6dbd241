-- Cancel live jobs and all their descendants. A job that is not running ends at once or, if it has steps to compensate,
-- runs once more for that. The worker of a running job is notified, and the job ends when its handler does. Returns a
-- row for each of _ids that was found and is not being undone already, with its state: cancelled; running: its worker
-- was notified; ready: it will be undone.
create or replace function stepwell.cancel(_ids uuid[], _reason text default null, _keep double precision default null)
returns table (id uuid, state stepwell.state, task text, queue text, attempt integer)
language plpgsql volatile security definer
as $$
declare
  _all uuid[];
  _undoing uuid[];
  _running record;
  _final record;
  _gone record;
begin
  if length(_reason) > 10000 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: the reason for a cancel must have at most 10000 characters';
  end if;
  _all := stepwell.lock_family(
    _ids, array(select j.parent_id from stepwell.job j where j.id = any (_ids) and j.parent_id is not null), true
  );

  with asked as (
    update stepwell.job j
    set cancelling = true, reason = coalesce(_reason, j.reason)
    -- With state = 'running' the planner would take the index on running jobs, hence worker_id.
    -- A job that is being undone has already failed or been cancelled.
    where j.id = any (_all) and j.worker_id is not null and j.undoing is null
    returning j.id, j.worker_id, j.task, j.queue, j.attempt
  )
  select array_agg(a.id) as ids, array_agg(a.task) as tasks, array_agg(a.queue) as queues,
    array_agg(a.attempt) as attempts, array_agg(distinct a.worker_id) as workers
  into _running
  from asked a;
  perform stepwell.notify('stepwell_cancel', w.id::text) from unnest(_running.workers) as w (id);

  _undoing := stepwell.begin_undo(
    array(select j.id from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable),
    '{cancelled}',
    array(select _reason from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable)
  );

  select array_agg(j.id) as ids, array_agg(j.epoch) as epochs, array_agg(_reason) as errors,
    -- The task is known from any worker that has it.
    array_agg(coalesce(
      _keep,
      stepwell.keep_failed_of(
        j.policy, (select w.tasks -> j.task from stepwell.worker w where w.tasks ? j.task limit 1), j.queue
      )
    )) as keeps,
    array_agg(j.task) as tasks, array_agg(j.queue) as queues, array_agg(j.attempt) as attempts
  into _final
  from stepwell.job j
  where j.id = any (_all) and j.worker_id is null and j.undoing is null;
  if _final.ids is not null then
    _gone := stepwell.to_history(
      _final.ids, _final.epochs, '{cancelled}', _final.keeps, _errors => _final.errors, _running => false
    );
    perform stepwell.release(
      _gone.ended, _gone.schedule_ids, _gone.endings, _admitted => _gone.admitted, _at_once => false,
      _members => _gone.members
    );
  end if;

  return query
    with changed as (
      select c.id, 'cancelled'::stepwell.state as state, c.task, c.queue, c.attempt
      from unnest(_final.ids, _final.tasks, _final.queues, _final.attempts) as c (id, task, queue, attempt)
      union all
      select r.id, 'running'::stepwell.state, r.task, r.queue, r.attempt
      from unnest(_running.ids, _running.tasks, _running.queues, _running.attempts) as r (id, task, queue, attempt)
      union all
      select j.id, 'ready'::stepwell.state, j.task, j.queue, j.attempt from stepwell.job j where j.id = any (_undoing)
    )
    select c.id, c.state, c.task, c.queue, c.attempt from changed c
    -- A join would compare each with each.
    where (c.id in (select i.id from unnest(_ids) as i (id))) is true;
end
$$;
