-- Create a job that starts with the steps that another job, live or finished, had saved before a step; a chain or
-- machine starts at that step. If the other job was compensated, or is being compensated, the new job starts over, as
-- with stepwell.retry: its saved steps no longer hold, and a saved token is used up. Children that had not ended are
-- spawned again. The new job has the limits of the other, and no unique key. A fork of a schedule's run has the tick of
-- that run, but no schedule, so it does not count as a run. Returns the id of the new job, or null if there is no such
-- job.
create or replace function stepwell.fork(_id uuid, _step text) returns uuid
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _new uuid := stepwell.uuid7();
  _job record;
  _state record;
begin
  select j.task, j.queue, j.rank, j.args, j.metadata, j.max_attempts, j.owner, j.policy, j.admission,
    j.scheduled_for, j.undoing is not null as undoing, null as failed_step, stepwell.timeline(j.id) as steps
  into _job
  from stepwell.job j where j.id = _id for share;
  if not found then
    select h.task, h.queue, h.rank, h.args, h.metadata, h.max_attempts, h.owner, h.policy, h.admission,
      h.scheduled_for, false as undoing, h.failed_step, h.steps
    into _job from stepwell.history h where h.id = _id and h.expires_at > _now limit 1;
    if not found then
      return null;
    end if;
  end if;
  select u.key, u.n, u.kind, u.value into _state from stepwell.unfold(_job.steps) u where u.key = _step;
  if not found and _job.failed_step = _step then
    -- The job failed at this step and saved nothing of it, so all saved steps come before it.
    _state.n := 2147483647;
  elsif not found then
    raise exception using errcode = 'SW004',
      message = format('stepwell: job %s has no step %s: "stepwell jobs show %1$s" lists its steps', _id,
        quote_literal(_step));
  end if;
  if _job.undoing or exists (select from stepwell.unfold(_job.steps) u where u.kind = 'undo') then
    _state.n := 0;
  end if;
  insert into stepwell.step (job_id, saved_at, until, event_id, child_id, seconds, n, epoch, fingerprint, pending,
    timed_out, undo, large, kind, key, event, event_key, value, error)
  select _new, u.saved_at, u.until,
    -- A signal that the other job received gets an id of its own in the new job, in case it is put back.
    case when u.kind = 'receive' and u.event_id is not null then nextval('stepwell.event_id_seq') else u.event_id end,
    u.child_id, u.seconds, u.n, 0, u.fingerprint, u.pending, u.timed_out,
    false, u.large, u.kind, u.key, u.event, u.event_key, u.value, u.error
  from (select f.* from stepwell.unfold(_job.steps) f order by f.event_id) u
  where u.kind <> 'undo' and not (u.kind = 'child' and u.pending)
    -- The attempts of that step come before it if they were far apart.
    and not (u.kind = 'retry' and starts_with(u.key, _step || '~'))
    and case when _state.kind = 'state' then u.kind = 'state' and u.n <= _state.n else u.n < _state.n end;
  insert into stepwell.large_value (job_id, expires_at, key, value)
  select _new, 'infinity', v.key, v.value from stepwell.large_value v
  where v.job_id = _id
    and exists (select from stepwell.step s where s.job_id = _new and s.key = v.key and s.large);
  perform stepwell.insert_jobs(
    _now, array[_new], array[_job.task], array[_job.args::text], array[_job.queue], array[-_job.rank::integer],
    _metadata => array[_job.metadata::text], _max_attempts => array[_job.max_attempts], _owners => array[_job.owner],
    _policies => array[
      case
        when _job.admission is null then _job.policy::text
        else (
          coalesce(_job.policy::jsonb, '{}')
            || jsonb_build_object('admission', _job.admission::jsonb - 'unique')
        )::text
      end
    ]
  );
  update stepwell.job j
  set durable = true, forked_from = _id, scheduled_for = _job.scheduled_for,
    cursor = case when _state.kind = 'state' and _state.n > 1 then _state.key end,
    input = case when _state.kind = 'state' and _state.n > 1 then _state.value end
  where j.id = _new;
  return _new;
end
$$;
