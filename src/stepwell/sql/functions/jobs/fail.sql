-- End attempts that did not succeed: each leaves a row in stepwell.failure, and its job is tried again or fails for
-- good. The database decides which: _delays[k] is the pause before the next try, null if there must be none; the
-- limit is the job's own, else _max_attempts[k]. A job that has saved steps since its last failure counts its attempts from
-- 1 again. One that fails for good and has steps to be undone is run once more for
-- that, and ends then. _failed_steps[k] is the step it failed at, _besides[k] a JSON array of those that failed beside it:
-- they are taken anew with it, by the next attempt or by a retry. _parent_ids are the jobs that spawned some of
-- them. Returns the ids that were refused by the fence.
create or replace function stepwell.fail(
  _ids uuid[],
  _epochs integer[],
  _reasons text[],
  _types text[],
  _messages text[],
  _tracebacks text[],
  _delays double precision[],
  _max_attempts integer[],
  _keeps double precision[],
  _failed_steps text[] default null,
  _parent_ids uuid[] default null,
  _besides text[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _final uuid[];
  _schedule_ids uuid[];
  _places stepwell.place[];
  _due_in double precision;
  _undo_ids uuid[];
  _undo_states text[];
  _undo_errors text[];
  _undo_steps text[];
  _undo_types text[];
  _undo_messages text[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _ends json;
begin
  perform stepwell.lock_family(_ids, _parent_ids, true);
  if _besides is not null then
    perform stepwell.mark_beside(_ids, _epochs, _besides);
  end if;
  with outcome as materialized (
    select distinct on (u.id, u.epoch) u.id, u.epoch, coalesce(left(u.reason, 200), 'error') as reason,
      coalesce(left(u.type, 1000), 'Error') as type, coalesce(left(u.message, 10000), '') as message,
      left(u.traceback, 100000) as traceback, u.delay, coalesce(u.max_attempts, 20) as max_attempts,
      coalesce(u.keep, 2592000) as keep, u.failed_step
    from unnest(_ids, _epochs, _reasons, _types, _messages, _tracebacks, _delays, _max_attempts, _keeps, _failed_steps)
      as u (id, epoch, reason, type, message, traceback, delay, max_attempts, keep, failed_step)
    order by u.id, u.epoch
  ), held as materialized (
    select o.id, o.reason, o.type, o.message, o.traceback, o.delay, o.keep, j.epoch, j.attempt, j.claimed_at,
      j.worker_id, j.durable, j.undoing, j.cancelling, j.steps_counted,
      case when j.durable then stepwell.steps_done(j.id) else 0 end as steps,
      case when j.cancelling then 'cancelled' else 'failed' end as state,
      case when j.cancelling then j.reason else left(concat_ws(': ', o.type, nullif(o.message, '')), 1000) end as error,
      case when not j.cancelling then o.failed_step end as failed_step,
      -- To undo there are twenty tries at least, however few there were to do.
      greatest(coalesce(j.max_attempts, o.max_attempts), case when j.undoing is not null then 20 end) as most
    from outcome o
    join stepwell.job j on j.id = o.id and j.epoch = o.epoch
    where j.id = any (_ids) and j.worker_id is not null
    for no key update of j
  ), counted as materialized (
    select h.id, h.reason, h.type, h.message, h.traceback, h.delay, h.keep, h.epoch, a.attempt, h.claimed_at, h.worker_id,
      h.durable, h.undoing, h.state, h.error, h.failed_step, h.steps,
      h.delay is not null and not h.cancelling and a.attempt < h.most as again
    from held h
    cross join lateral (select case when h.steps > h.steps_counted then 1 else h.attempt end as attempt) a
  ), judged as materialized (
    select h.id, h.reason, h.type, h.message, h.traceback, h.delay, h.keep, h.epoch, h.attempt, h.claimed_at,
      h.worker_id, h.durable, h.undoing, h.state, h.error, h.failed_step, h.steps, h.again,
      not h.again and h.durable and h.undoing is null and exists (
        select from stepwell.step s where s.job_id = h.id and s.undo and s.error is null and not s.pending
      ) as undo
    from counted h
  ), recorded as (
    insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type,
      message, traceback)
    select h.id, stepwell.expiry(_now, h.keep), _now, h.claimed_at, h.worker_id, h.epoch, h.attempt, h.reason, h.type,
      h.message, h.traceback
    from judged h
    where h.keep > 0
  ), retried as (
    update stepwell.job j
    set state = case when h.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = _now + h.delay * interval '1 second', worker_id = null, progress = null,
      attempt = h.attempt, steps_counted = h.steps
    from judged h
    where h.again and j.id = any (_ids) and j.id = h.id
    returning j.queue, j.rank, j.state, j.run_at
  ), ended as (
    delete from stepwell.job j
    using judged h
    where not h.again and not h.undo and j.id = any (_ids) and j.id = h.id
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, h.attempt, j.max_attempts, j.rank,
      j.task, j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from, j.owner, j.life, j.policy, h.keep,
      -- What it failed with, which is not what undoing it did; rows from before these were kept have the line of both.
      case when h.undoing is null then h.type else h.undoing ->> 'type' end as type,
      case when h.undoing is null then h.message else coalesce(h.undoing ->> 'message', h.undoing ->> 'error') end as message,
      coalesce((h.undoing ->> 'state')::stepwell.state, h.state::stepwell.state) as state,
      case when h.undoing is null then h.failed_step else h.undoing ->> 'failed_step' end as failed_step,
      case
        when h.undoing is null then h.error
        else left(concat_ws('; ', h.undoing ->> 'error', 'and undoing it failed: ' || h.error), 1000)
      end as error
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error, cursor, input,
      parent_id, parent_key, forked_from, owner, life, policy, failed_step, steps)
    select e.id, stepwell.expiry(_now, e.keep), _now, e.run_at, e.enqueued_at, e.claimed_at, e.worker_id, e.epoch,
      e.attempt, e.max_attempts, e.rank, e.state, e.task, e.queue, e.args, e.metadata, e.schedule_id, e.scheduled_for,
      e.error, e.cursor, e.input, e.parent_id, e.parent_key, e.forked_from, e.owner, e.life, e.policy, e.failed_step,
      case when e.durable then stepwell.timeline(e.id) end
    from ended e
    where e.keep > 0
  )
  select array(select h.id from held h), array(select e.id from ended e),
    array(select e.schedule_id from ended e where e.schedule_id is not null),
    array(select row(r.queue, r.rank, r.run_at)::stepwell.place from retried r where r.state = 'ready'),
    (select extract(epoch from min(r.run_at) - _now) from retried r where r.state = 'scheduled'),
    array(select h.id from judged h where h.undo order by h.id),
    array(select h.state from judged h where h.undo order by h.id),
    array(select h.error from judged h where h.undo order by h.id),
    array(select h.failed_step from judged h where h.undo order by h.id),
    array(select h.type from judged h where h.undo order by h.id),
    array(select h.message from judged h where h.undo order by h.id),
    array(select e.id from ended e where e.durable),
    array(select e.id from ended e where e.durable and e.keep > 0 order by e.id),
    array(select stepwell.expiry(_now, e.keep) from ended e where e.durable and e.keep > 0 order by e.id),
    (
      select json_agg(json_build_object('parent_id', e.parent_id, 'key', e.parent_key, 'child_id', e.id, 'state',
        e.state, 'type', e.type, 'message', case when e.state = 'failed' then e.message else e.error end))
      from ended e where e.parent_id is not null
    )
  into _accepted, _final, _schedule_ids, _places, _due_in, _undo_ids, _undo_states, _undo_errors, _undo_steps,
    _undo_types, _undo_messages, _durable, _kept, _expires_ats, _ends;
  if _failed_steps is not null then
    -- Those of jobs that are tried again, so that the step is, too; of the others nothing is left here.
    delete from stepwell.step s
    using unnest(_ids, _failed_steps) as u (id, failed_step)
    where s.job_id = any (array(
        select a.id from unnest(_accepted) as a (id) except select b.id from unnest(_undo_ids) as b (id)
      ))
      and s.job_id = u.id and s.error is not null
      and (
        s.key = u.failed_step or s.kind = 'retry' and starts_with(s.key, u.failed_step || '~')
        or (s.error ->> 'anew')::boolean
      );
  end if;
  if cardinality(_undo_ids) > 0 then
    perform stepwell.begin_undo(_undo_ids, _undo_states, _undo_errors, _undo_steps);
    -- For the parent, which is told when that is done.
    update stepwell.job j
    set undoing = (j.undoing::jsonb || jsonb_build_object('type', u.type, 'message', u.message))::json
    from unnest(_undo_ids, _undo_states, _undo_types, _undo_messages) as u (id, state, type, message)
    where j.id = any (_undo_ids) and j.id = u.id and u.state = 'failed' and j.parent_id is not null;
  end if;
  if cardinality(_durable) > 0 then
    perform stepwell.delete_steps(_durable, _kept, _expires_ats, _durable);
  end if;
  if cardinality(_durable || _undo_ids) > 0 then
    perform stepwell.cancel_children(_durable || _undo_ids);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if cardinality(_schedule_ids) > 0 then
    perform stepwell.admit(_schedule_ids);
  end if;
  perform stepwell.notify_ready(_places, _due_in);
  perform stepwell.notify_done(_final);
  if cardinality(_accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_accepted) as a (id));
end
$$;
