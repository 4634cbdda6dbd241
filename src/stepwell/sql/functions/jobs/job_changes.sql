-- The present state of jobs, for callers that watch them: a row for each job whose mark differs from the given one. The
-- mark is a checksum of all that a watcher sees. A null mark differs from every other. State null: the job never
-- existed, or has expired. steps are the newest 1000 of a durable job, as JSON; the value of each is text.
create or replace function stepwell.job_changes(_ids uuid[], _marks bigint[]) returns table (
  id uuid,
  mark bigint,
  state stepwell.state,
  task text,
  attempt integer,
  cursor text,
  progress json,
  result json,
  error text,
  steps json
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  -- One statement, so that a job that is moving to history, or back by a retry, is seen in exactly one place.
  return query
    select i.id, m.mark, a.state, a.task, a.attempt, a.cursor, a.progress, a.result, a.error,
      case when a.durable then s.steps end
    from unnest(_ids, _marks) as i (id, mark)
    left join lateral (
      select j.state, j.task, j.attempt, j.cursor, j.progress, null::json as result, j.reason as error, j.durable,
        concat_ws(
          ' ', j.state, j.epoch, j.attempt, j.cancelling, j.cursor, j.progress, c.steps, c.pending, c.saved_at
        ) as looks
      from stepwell.job j
      left join lateral (
        select count(*) as steps, count(*) filter (where s.pending) as pending, max(s.saved_at) as saved_at
        from stepwell.step s
        where s.job_id = j.id
      ) c on j.durable
      where j.id = i.id
      union all
      select h.state, h.task, h.attempt, h.cursor, null, h.result, h.error, h.steps is not null,
        concat_ws(' ', h.state, h.epoch, h.finished_at)
      from stepwell.history h
      where h.id = i.id and h.expires_at > _now
      limit 1
    ) a on true
    cross join lateral (select coalesce(hashtextextended(a.looks, 0), 0) as mark) m
    left join lateral (
      select json_agg(
        json_build_object(
          'n', s.n, 'key', s.key, 'kind', s.kind, 'pending', s.pending, 'timed_out', s.timed_out,
          'value', s.value::text, 'large', s.large,
          'error', case
            when s.error ->> 'state' = 'cancelled' then concat_ws(': ', 'cancelled', nullif(s.error ->> 'message', ''))
            when s.error is not null then concat_ws(': ', s.error ->> 'type', nullif(s.error ->> 'message', ''))
          end,
          'cancelled', coalesce(s.error ->> 'state' = 'cancelled', false),
          'saved_at', s.saved_at, 'seconds', s.seconds, 'until', nullif(s.until, 'infinity'::timestamptz),
          'child_id', s.child_id, 'event', s.event, 'event_key', s.event_key
        ) order by s.n, s.key
      ) as steps
      from (
        select s.* from stepwell.steps s where s.job_id = i.id order by s.n desc, s.key limit 1000
      ) s
    ) s on a.durable and m.mark is distinct from i.mark
    where m.mark is distinct from i.mark;
end
$$;
