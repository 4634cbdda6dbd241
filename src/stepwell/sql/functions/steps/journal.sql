-- The saved state of a durable job, for the worker that claims it: cursor, steps, and the number of steps that were
-- counted at the last failure. Large values are left out.
create or replace function stepwell.journal(
  _id uuid,
  _cursor text,
  _input json,
  _undoing json,
  -- A claim of schema 5 that waited for the migration still calls with four arguments.
  _life integer default 0,
  _steps_counted integer default 0
) returns text
language plpgsql stable
as $$
begin
  return json_build_object(
    'cursor', _cursor,
    'input', _input,
    'undoing', _undoing is not null,
    'life', _life,
    'steps_counted', _steps_counted,
    'steps', (
      select json_agg(
        json_build_array(
          s.key, s.n, s.kind, s.pending, s.timed_out, s.large, s.undo, s.fingerprint, s.child_id, s.error, s.value
        )
        order by s.n
      )
      from stepwell.step s
      where s.job_id = _id and s.kind <> 'taken'
    )
  );
end
$$;
