-- What the first page of the dashboard shows: jobs by state, the first 100 queues, the backlog of all queues, workers,
-- the runs of a range of time, and the newest failures. A count stops at 10,001, and of a queue at 1,001. When half of
-- _milliseconds are gone, the counts of further queues stop at 101, and of further states at 1,000. The backlog takes
-- another half.
create or replace function stepwell.dashboard_overview(_milliseconds integer default 80, _range text default '1h')
returns json
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  return json_build_object(
    'states', stepwell.count_states(null, _milliseconds / 2),
    'queues', stepwell.dashboard_queues(
      _limit => 100, _milliseconds => _milliseconds / 2, _range => null, _most => 1001
    ),
    'backlog', stepwell.backlog(_milliseconds / 2),
    'workers', (
      select json_build_object(
        'alive', count(*) filter (where w.lease_until > _now), 'all', count(*),
        'slots', coalesce(sum(w.concurrency) filter (where w.lease_until > _now), 0),
        'running', coalesce(sum(w.running) filter (where w.lease_until > _now), 0)
      )
      from stepwell.worker w
    ),
    'chart', stepwell.stat_chart(_range),
    'last_hour', (
      select json_build_object(
        'succeeded', coalesce(sum(r.succeeded), 0), 'failed', coalesce(sum(r.failed), 0),
        'cancelled', coalesce(sum(r.cancelled), 0), 'ended', coalesce(sum(r.ended), 0),
        'seconds', coalesce(sum(r.seconds), 0)
      )
      from stepwell.stat_rows(date_trunc('minute', _now) - interval '59 minutes', 1, true) r
    ),
    'failures', coalesce(
      (
        select json_agg(
          json_build_object(
            'id', f.id, 'task', f.task, 'queue', f.queue, 'error', left(f.error, 300), 'finished_at', f.finished_at,
            'attempt', f.attempt
          )
        )
        from (
          select h.id, h.task, h.queue, h.error, h.finished_at, h.attempt, h.expires_at
          from stepwell.history h
          where h.state = 'failed'
          order by h.id desc
          limit 8
        ) f
        where f.expires_at > _now
      ),
      '[]'
    ),
    'default_rows', exists (select from stepwell.history_default) or exists (select from stepwell.failure_default)
  );
end
$$;
