-- Why a job does not run: the cause in a word, its subject in words, and what a person can do next. until: when the
-- cause ends by itself, at the earliest; jobs: up to three jobs that it waits for. It always returns one row.
-- The cause is the first of what must happen before the job runs. It reads a few rows by index and all workers, so the
-- cost does not grow with the backlog.
create or replace function stepwell.why(
  _id uuid,
  out cause text,
  out subject text,
  out next_act text,
  out until timestamptz,
  out jobs uuid[]
)
language plpgsql stable security definer
as $$
declare
  _run_now constant text := format('wait, or run it now: stepwell jobs run %s', _id);
  _now timestamptz := stepwell.now();
  _job stepwell.job;
  _ended record;
  _found record;
begin
  select j.* into _job from stepwell.job j where j.id = _id;
  if not found then
    select h.state::text as state, h.error into _ended
    from stepwell.history h where h.id = _id and h.expires_at > _now;
    if not found then
      cause := 'not_found';
      subject := format('there is no job %s', _id);
      next_act := 'check the id; jobs that ended are removed after a time';
    else
      cause := 'ended';
      subject := concat_ws(
        ': ', case _ended.state when 'cancelled' then 'it was cancelled' else 'it has ' || _ended.state end,
        _ended.error
      );
      next_act := case
        when _ended.state = 'succeeded' then format('see its result: stepwell jobs show %s', _id)
        else format('run it again: stepwell jobs retry %s', _id)
      end;
      select k.job_id, case when not k.live then k.expires_at end as expires_at into _found
      from stepwell.unique_key k
      where k.job_id = stepwell.key_holder(_id) and k.key = (
        select h.admission #>> '{unique,key}' from stepwell.history h where h.id = _id limit 1
      );
      if _ended.state <> 'succeeded' and _found.job_id is not null then
        -- A retry would be refused.
        cause := 'unique';
        until := _found.expires_at;
        jobs := array[_found.job_id];
        subject := subject || format('; it cannot run again because job %s has its unique key', _found.job_id);
        next_act := format(
          'see why that job has not ended: stepwell jobs why %s; then run this one again: stepwell jobs retry %s',
          _found.job_id, _id
        );
      end if;
    end if;
    return;
  end if;

  if _job.state = 'running' then
    cause := 'running';
    select w.host, w.pid, w.lease_until > _now as alive into _found from stepwell.worker w where w.id = _job.worker_id;
    if _found.alive then
      subject := format(
        'attempt %s runs on worker %s (%s, pid %s)%s', _job.attempt, _job.worker_id, _found.host, _found.pid,
        case when _job.cancelling then ' and was asked to stop' else '' end
      ) || coalesce(
        (
          select format(
            '; attempt %s failed: %s', f.attempt, left(concat_ws(': ', f.type, nullif(f.message, '')), 1000)
          )
          from stepwell.failure f where f.job_id = _id and f.expires_at > _now
          order by f.epoch desc
          limit 1
        ),
        ''
      );
      next_act := case
        when _job.cancelling then 'wait for its handler to end'
        else format('wait for it to end, or cancel it: stepwell jobs cancel %s', _id)
      end;
    else
      subject := format('its worker %s is dead', _job.worker_id);
      next_act := 'wait for a live worker to rescue it, or start one: stepwell worker MODULE:APP';
    end if;
    return;
  end if;

  if _job.state = 'scheduled' and _job.run_at > _now then
    until := _job.run_at;
    next_act := _run_now;
    select f.attempt, f.type, f.message into _found
    from stepwell.failure f where f.job_id = _id and f.epoch = _job.epoch and f.expires_at > _now
    limit 1;
    if _job.misfits is not null and _job.run_at = _job.misfit_until then
      cause := 'misfit';
      subject := concat_ws(': ', 'its args do not fit the code of the workers', _job.misfit);
      next_act := format(
        'start a worker with code that takes them, or change them: stepwell jobs edit %s --args JSON', _id
      );
    elsif found then
      cause := 'retry';
      subject := format(
        'attempt %s failed: %s', _found.attempt, left(concat_ws(': ', _found.type, nullif(_found.message, '')), 1000)
      );
    elsif _job.epoch > 0 and _job.cursor is null then
      cause := 'snooze';
      subject := 'its handler asked to run later';
    else
      cause := 'delay';
      subject := 'it is not due yet';
    end if;
    return;
  end if;

  if _job.state = 'waiting' then
    select w.* into cause, subject, next_act, until, jobs from stepwell.why_waiting(_job) w;
    return;
  end if;
  if _job.state = 'blocked' then
    select b.* into cause, subject, next_act, until, jobs from stepwell.why_blocked(_job) b;
    if cause is not null then
      return;
    end if;
  end if;
  select r.* into cause, subject, next_act, until, jobs from stepwell.why_ready(_job) r;
end
$$;
