-- One group of failures, with its newest failed attempts, the last one with the end of its traceback. Null if there is
-- no such group.
create or replace function stepwell.dashboard_failure(_fingerprint uuid) returns json
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  return (
    select json_build_object(
      'id', l.fingerprint, 'task', l.task, 'type', left(l.type, 1000), 'frame', l.frame, 'state', l.state,
      'state_at', l.state_at, 'reopened', l.reopened, 'reopened_at', l.reopened_at, 'first_at', l.first_at,
      'last_at', l.last_at, 'count', l.count, 'hours', l.hours, 'message', l.message, 'job_id', l.job_id,
      'attempts', coalesce(
        (
          select json_agg(
            json_build_object(
              'job_id', a.job_id, 'attempt', a.attempt, 'reason', a.reason, 'message', left(a.message, 1000),
              'failed_at', a.failed_at, 'traceback', case when a.n = 1 then right(a.traceback, 32768) end
            )
            order by a.n
          )
          from (
            select f.job_id, f.attempt, f.reason, f.message, f.failed_at, f.traceback, row_number() over () as n
            from (
              select f.* from stepwell.failure f
              where f.fingerprint = _fingerprint and f.expires_at > _now
              order by f.job_id desc
              limit 10
            ) f
          ) a
        ),
        '[]'
      )
    )
    from stepwell.list_failures(_fingerprint => _fingerprint) l
  );
end
$$;
