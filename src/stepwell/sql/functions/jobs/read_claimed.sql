-- Args, metadata and saved steps of a job that was claimed without them. No row: the run no longer holds the job.
create or replace function stepwell.read_claimed(_id uuid, _epoch integer)
returns table (args json, metadata jsonb, journal text)
language sql stable security definer
as $$
  select j.args, j.metadata,
    case when j.durable then stepwell.journal(j.id, j.cursor, j.input, j.undoing, j.life, j.steps_counted) end
  from stepwell.job j
  where j.id = _id and j.epoch = _epoch and j.worker_id is not null
$$;
