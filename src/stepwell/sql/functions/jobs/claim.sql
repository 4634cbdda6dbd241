-- The claim of workers of schema 6; see stepwell.claim_jobs.
create or replace function stepwell.claim(
  _worker_id uuid,
  _queues text[],
  _ranks integer[],
  _run_ats timestamptz[],
  _ids uuid[],
  _tasks text[],
  _limit integer,
  _shares double precision[] default null,
  _most_bytes bigint default 67108864,
  _unread boolean default false
) returns table (
  id uuid,
  queue text,
  task text,
  args json,
  metadata jsonb,
  epoch integer,
  attempt integer,
  rank smallint,
  run_at timestamptz,
  scheduled_for timestamptz,
  parent_id uuid,
  journal text,
  max_attempts integer,
  unread bigint,
  more boolean
)
language sql volatile security definer
as $$
  select c.id::uuid, c.queue, c.task, c.args::json, c.metadata::jsonb, c.epoch, c.attempt, c.rank,
    'epoch'::timestamptz + c.run_at * interval '1 microsecond',
    'epoch'::timestamptz + c.scheduled_for * interval '1 microsecond',
    c.parent_id::uuid, c.journal, c.max_attempts, c.unread, c.more
  from stepwell.claim_jobs(
    _worker_id, _queues, _ranks,
    array(
      select stepwell.microseconds(u.at)
      from unnest(_run_ats) with ordinality as u (at, n)
      order by u.n
    ),
    _ids, _tasks, _limit, _shares, _most_bytes, _unread
  ) c
$$;
