-- End attempts that did not succeed. Each leaves a row in stepwell.failure, and its job is retried or fails for good.
-- The database decides which: _delays[k] is the pause before the next attempt, null if there must be none; the limit is
-- that of the job, else _max_attempts[k]. If the job has saved steps since its last failure, its attempts are counted
-- from 1 again. A job that fails for good and has steps to compensate runs once more for that, and ends then.
-- _failed_steps[k] is the step at which the job failed, and _besides[k] a JSON array of the steps that failed beside
-- it: the next attempt, or a retry, repeats all of them. _parent_ids are the parents of those jobs that were spawned.
-- _by_queue is as in stepwell.finish. _frames[k] is the function of the user's code that raised the error, for the
-- group that the failure is counted in; null: there is none, or it is not known. _first_steps[k] is the step of a
-- chain, or state of a machine, that the job began with, if it failed there. Returns the ids refused by the fence.
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
  _besides text[] default null,
  _by_queue boolean[] default null,
  _frames text[] default null,
  _first_steps text[] default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _found record;
  _gone record;
begin
  if true = any (_by_queue) and exists (select from stepwell.queue_keep) then
    _keeps := stepwell.keeps_by_queue(_ids, '{failed}', _keeps, _by_queue);
  end if;
  perform stepwell.lock_family(_ids, _parent_ids, true);
  if _besides is not null then
    perform stepwell.mark_beside(_ids, _epochs, _besides);
  end if;
  if _first_steps is not null then
    perform stepwell.enter_first(_ids, _epochs, _first_steps);
  end if;
  with outcome as materialized (
    select distinct on (u.id, u.epoch) u.id, u.epoch, coalesce(left(u.reason, 200), 'error') as reason,
      coalesce(left(u.type, 1000), 'Error') as type, coalesce(left(u.message, 10000), '') as message,
      left(u.traceback, 100000) as traceback, u.delay, coalesce(u.max_attempts, 20) as max_attempts,
      coalesce(u.keep, 2592000) as keep, u.failed_step, coalesce(left(u.frame, 500), '') as frame
    from unnest(_ids, _epochs, _reasons, _types, _messages, _tracebacks, _delays, _max_attempts, _keeps, _failed_steps,
      _frames)
      as u (id, epoch, reason, type, message, traceback, delay, max_attempts, keep, failed_step, frame)
    order by u.id, u.epoch
  ), held as materialized (
    select o.id, o.reason, o.type, o.message, o.traceback, o.delay, o.keep, j.epoch, j.attempt, j.claimed_at,
      j.worker_id, j.durable, j.undoing, j.cancelling, j.steps_counted, j.task, o.frame,
      case when j.durable then stepwell.steps_done(j.id) else 0 end as steps,
      case when j.cancelling then 'cancelled' else 'failed' end as state,
      case when j.cancelling then j.reason else left(concat_ws(': ', o.type, nullif(o.message, '')), 1000) end as error,
      case when not j.cancelling then o.failed_step end as failed_step,
      -- An undo has at least twenty attempts, however few the job itself had.
      greatest(coalesce(j.max_attempts, o.max_attempts), case when j.undoing is not null then 20 end) as most
    from outcome o
    join stepwell.job j on j.id = o.id and j.epoch = o.epoch
    where j.id = any (_ids) and j.worker_id is not null
    for no key update of j
  ), fingerprints as materialized (
    -- Many failures have few fingerprints.
    select u.task, u.type, u.frame, stepwell.failure_group_of(u.task, u.type, nullif(u.frame, '')) as fingerprint
    from (select distinct h.task, h.type, h.frame from held h where not h.cancelling) u
  ), counted as materialized (
    select h.id, h.reason, h.type, h.message, h.traceback, h.delay, h.keep, h.epoch, a.attempt, h.claimed_at,
      h.worker_id, h.durable, h.undoing, h.state, h.error, h.failed_step, h.steps,
      h.delay is not null and not h.cancelling and a.attempt < h.most as again, h.task, h.frame,
      case when not h.cancelling then f.fingerprint end as fingerprint
    from held h
    left join fingerprints f on f.task = h.task and f.type = h.type and f.frame = h.frame
    cross join lateral (select case when h.steps > h.steps_counted then 1 else h.attempt end as attempt) a
  ), judged as materialized (
    select h.id, h.reason, h.type, h.message, h.traceback, h.delay, h.keep, h.epoch, h.attempt, h.claimed_at,
      h.worker_id, h.state, h.error, h.failed_step, h.steps, h.again, h.fingerprint,
      not h.again and h.durable and h.undoing is null and exists (
        select from stepwell.step s where s.job_id = h.id and s.undo and s.error is null and not s.pending
      ) as undo
    from counted h
  ), recorded as (
    insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type,
      message, traceback, fingerprint)
    select h.id, stepwell.expiry(_now, h.keep), _now, h.claimed_at, h.worker_id, h.epoch, h.attempt, h.reason, h.type,
      h.message, h.traceback, h.fingerprint
    from judged h
    where h.keep > 0
  ), retried as (
    update stepwell.job j
    set state = case when h.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = _now + h.delay * interval '1 second', worker_id = null, progress = null,
      attempt = h.attempt, steps_counted = h.steps
    from judged h
    where h.again and j.id = any (_ids) and j.id = h.id
    returning j.id, j.queue, j.rank, j.state, j.run_at
  ), undone as (
    select array_agg(h.id) as ids, array_agg(h.state) as states, array_agg(h.error) as errors,
      array_agg(h.failed_step) as steps, array_agg(h.type) as types, array_agg(h.message) as messages
    from judged h
    where h.undo
  ), final as (
    select array_agg(h.id) as ids, array_agg(h.epoch) as epochs, array_agg(h.state::stepwell.state) as states,
      array_agg(h.keep) as keeps, array_agg(h.error) as errors,
      array_agg(json_build_object(
        'attempt', h.attempt, 'failed_step', h.failed_step, 'type', h.type, 'message', h.message
      )) as failures
    from judged h
    where not h.again and not h.undo
  ), grouped as (
    select h.fingerprint, min(h.task) as task, min(h.type) as type, min(nullif(h.frame, '')) as frame,
      (array_agg(left(h.message, 500)))[1] as message, (array_agg(h.id))[1] as job_id, count(*)::integer as count
    from counted h
    where h.fingerprint is not null
    group by h.fingerprint
  ), noted as (
    select array_agg(g.fingerprint) as fingerprints, array_agg(g.task) as tasks, array_agg(g.type) as types,
      array_agg(g.frame) as frames, array_agg(g.message) as messages, array_agg(g.job_id) as job_ids,
      array_agg(g.count) as counts
    from grouped g
  )
  select array(select h.id from held h) as accepted, array(select r.id from retried r) as retried,
    array(select row(r.queue, r.rank, r.run_at)::stepwell.place from retried r where r.state = 'ready') as places,
    (select extract(epoch from min(r.run_at) - _now) from retried r where r.state = 'scheduled') as due_in,
    u.ids as undo_ids, u.states as undo_states, u.errors as undo_errors, u.steps as undo_steps, u.types as undo_types,
    u.messages as undo_messages, f.ids, f.epochs, f.states, f.keeps, f.errors, f.failures, n.fingerprints, n.tasks,
    n.types, n.frames, n.messages, n.job_ids, n.counts
  into _found
  from undone u cross join final f cross join noted n;
  if _found.undo_ids is not null then
    perform stepwell.begin_undo(_found.undo_ids, _found.undo_states, _found.undo_errors, _found.undo_steps);
    -- The parent learns of the error when the undo is done.
    update stepwell.job j
    set undoing = (j.undoing::jsonb || jsonb_build_object('type', u.type, 'message', u.message))::json
    from unnest(_found.undo_ids, _found.undo_states, _found.undo_types, _found.undo_messages)
      as u (id, state, type, message)
    where j.id = any (_found.undo_ids) and j.id = u.id and u.state = 'failed' and j.parent_id is not null;
  end if;
  if _found.ids is not null then
    _gone := stepwell.to_history(
      _found.ids, _found.epochs, _found.states, _found.keeps, null, _found.errors, _found.failures, _at => _now
    );
    if _gone.unsuccessful is not null then
      perform stepwell.cancel_children(_gone.unsuccessful);
    end if;
    perform stepwell.release(
      _gone.ended, _gone.schedule_ids, _gone.endings, _admitted => _gone.admitted, _members => _gone.members
    );
  end if;
  if _found.undo_ids is not null then
    perform stepwell.cancel_children(_found.undo_ids);
  end if;
  if _failed_steps is not null then
    -- The next attempt repeats these steps. Jobs that have ended have no steps left, and an undo needs them.
    delete from stepwell.step s
    using unnest(_ids, _failed_steps) as u (id, failed_step)
    where s.job_id = any (array(
        select a.id from unnest(_found.accepted) as a (id) except select b.id from unnest(_found.undo_ids) as b (id)
      ))
      and s.job_id = u.id and s.error is not null
      and (
        s.key = u.failed_step or s.kind = 'retry' and starts_with(s.key, u.failed_step || '~')
        or (s.error ->> 'anew')::boolean
      );
  end if;
  if _found.fingerprints is not null then
    perform stepwell.note_failures(
      _found.fingerprints, _found.tasks, _found.types, _found.frames, _found.messages, _found.job_ids, _found.counts
    );
  end if;
  perform stepwell.release(_handed_back => _found.retried, _places => _found.places, _due_in => _found.due_in);
  if cardinality(_found.accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_found.accepted) as a (id));
end
$$;
