-- Everything about one job, but its steps: null if it does not exist. A value of more than 64 KiB is left out, and its
-- size is given instead. Of the failed attempts the newest 20 are given, and of a traceback its end.
create or replace function stepwell.dashboard_job(_id uuid) returns json
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _most constant integer := 65536;
  _job record;
  _setting jsonb;
begin
  select j.* into _job from stepwell.jobs j where j.id = _id;
  if not found then
    return null;
  end if;
  select w.settings -> _job.task into _setting from stepwell.worker w
  where w.lease_until > _now and w.settings ? _job.task
  order by w.number desc
  limit 1;
  return json_build_object(
    'id', _job.id, 'state', _job.state, 'task', _job.task, 'queue', _job.queue, 'priority', _job.priority,
    'args', case when octet_length(_job.args::text) <= _most then _job.args::text end,
    'args_size', octet_length(_job.args::text),
    'metadata', case when octet_length(_job.metadata::text) <= _most then _job.metadata::text end,
    'result', case when octet_length(_job.result::text) <= _most then _job.result::text end,
    'result_size', octet_length(_job.result::text),
    'error', left(_job.error, 10000),
    'progress', case when octet_length(_job.progress::text) <= _most then _job.progress::text end,
    'epoch', _job.epoch, 'attempt', _job.attempt, 'max_attempts', _job.max_attempts, 'cancelling', _job.cancelling,
    'worker_id', _job.worker_id, 'enqueued_at', _job.enqueued_at,
    'run_at', nullif(nullif(_job.run_at, 'infinity'), '-infinity'), 'claimed_at', _job.claimed_at,
    'finished_at', _job.finished_at, 'expires_at', nullif(_job.expires_at, 'infinity'), 'owner', _job.owner,
    'cursor', _job.cursor, 'parent_id', _job.parent_id, 'forked_from', _job.forked_from, 'undoing', _job.undoing,
    'schedule', (
      select json_build_object('owner', s.owner, 'name', s.name) from stepwell.schedule s where s.id = _job.schedule_id
    ),
    'scheduled_for', _job.scheduled_for, 'policy', _job.policy::text,
    'worker', (
      select json_build_object('host', w.host, 'pid', w.pid, 'alive', w.lease_until > _now)
      from stepwell.worker w where w.id = _job.worker_id
    ),
    'failures', coalesce(
      (
        select json_agg(
          json_build_object(
            'attempt', f.attempt, 'epoch', f.epoch, 'reason', f.reason, 'type', left(f.type, 500),
            'message', left(f.message, 4000), 'traceback', right(f.traceback, 32768), 'worker_id', f.worker_id,
            'claimed_at', f.claimed_at, 'failed_at', f.failed_at,
            'fingerprint', (select g.fingerprint from stepwell.failure_group g where g.fingerprint = f.fingerprint)
          )
          order by f.epoch desc
        )
        from (
          select f.* from stepwell.failure f
          where f.job_id = _id and f.expires_at > _now
          order by f.epoch desc
          limit 20
        ) f
      ),
      '[]'
    ),
    'steps', coalesce(
      (select count(*) from (select from stepwell.step s where s.job_id = _id limit 100000) c),
      0
    ) + coalesce(
      (select sum(json_array_length(h.steps)) from stepwell.history h where h.id = _id and h.expires_at > _now),
      0
    ),
    'maintainer', _setting #>> '{maintainer,value}', 'runbook', _setting #>> '{runbook,value}',
    'log_lines', (select h.lines from stepwell.run_log_head h where h.job_id = _id),
    'now', _now
  );
end
$$;
