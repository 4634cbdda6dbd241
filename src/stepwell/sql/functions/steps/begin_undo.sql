-- Hand back jobs that have steps to compensate, to run once more for that, instead of ending. The caller has locked the
-- jobs. _states, _errors and _failed_steps say how they end after the undo. Returns the jobs whose undo begins.
create or replace function stepwell.begin_undo(
  _ids uuid[],
  _states text[],
  _errors text[],
  _failed_steps text[] default null
) returns uuid[]
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _begun uuid[];
  _places stepwell.place[];
begin
  with begun as (
    update stepwell.job j
    set state = 'ready', run_at = _now, worker_id = null, attempt = 0, cancelling = false, awaits = null, unsure = null,
      undoing = json_build_object(
        'state', coalesce(u.state, _states[1]), 'error', coalesce(u.error, j.reason), 'failed_step', u.failed_step
      )
    from unnest(_ids, _states, _errors, _failed_steps) as u (id, state, error, failed_step)
    where j.id = any (_ids) and j.id = u.id and j.durable and j.undoing is null
      -- As a join, this would read all steps.
      and (
        select true from stepwell.step s
        where s.job_id = j.id and s.undo and s.error is null and not s.pending limit 1
      )
    returning j.id, j.queue, j.rank, j.run_at
  )
  select coalesce(array_agg(b.id), '{}'), array_agg(row(b.queue, b.rank, b.run_at)::stepwell.place)
  into _begun, _places from begun b;
  perform stepwell.release(_handed_back => _begun, _places => _places);
  return _begun;
end
$$;
