-- The saved steps of a job as one value, to be kept in its history.
create or replace function stepwell.timeline(_job_id uuid) returns json
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select json_agg(
      json_build_object(
        'key', s.key, 'n', s.n, 'kind', s.kind, 'epoch', s.epoch, 'saved_at', s.saved_at, 'seconds', s.seconds,
        'pending', s.pending, 'timed_out', s.timed_out, 'undo', s.undo, 'large', s.large, 'until', s.until,
        'fingerprint', s.fingerprint, 'child_id', s.child_id, 'event', s.event, 'event_key', s.event_key,
        'event_id', s.event_id, 'value', s.value, 'error', s.error
      )
      order by s.n
    )
    from stepwell.step s
    where s.job_id = _job_id
  );
end
$$;
