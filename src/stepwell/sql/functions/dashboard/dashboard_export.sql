-- The jobs with these ids, at most 500, in the order of the ids, for an export: with args, metadata and result. A value
-- of more than 64 KiB is left out.
create or replace function stepwell.dashboard_export(_ids uuid[]) returns json
language plpgsql stable security definer
as $$
declare
  _most constant integer := 65536;
begin
  return coalesce(
    (
      select json_agg(
        json_build_object(
          'id', j.id, 'state', j.state, 'task', j.task, 'queue', j.queue, 'priority', j.priority,
          'attempt', j.attempt, 'max_attempts', j.max_attempts, 'owner', j.owner,
          'enqueued_at', j.enqueued_at, 'run_at', nullif(nullif(j.run_at, 'infinity'), '-infinity'),
          'claimed_at', j.claimed_at, 'finished_at', j.finished_at, 'worker_id', j.worker_id,
          'error', left(j.error, 10000),
          'args', case when octet_length(j.args::text) <= _most then j.args::text end,
          'metadata', case when octet_length(j.metadata::text) <= _most then j.metadata::text end,
          'result', case when octet_length(j.result::text) <= _most then j.result::text end
        )
        order by i.n
      )
      from unnest(_ids[:500]) with ordinality as i (id, n)
      cross join lateral (select v.* from stepwell.jobs v where v.id = i.id offset 0) j
    ),
    '[]'
  );
end
$$;
