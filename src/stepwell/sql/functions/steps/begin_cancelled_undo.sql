-- The part of stepwell.finish for running jobs that were cancelled: lock them with their descendants, and begin the
-- undo of those that have steps to compensate. Returns the ids of the latter.
create or replace function stepwell.begin_cancelled_undo(
  _ids uuid[],
  _epochs integer[],
  _states stepwell.state[],
  _errors text[],
  _parent_ids uuid[]
) returns uuid[]
language plpgsql volatile
as $$
declare
  _cancelled uuid[];
  _reasons text[];
begin
  perform stepwell.lock_family(_ids, _parent_ids, true);
  select array_agg(j.id), array_agg(u.error) into _cancelled, _reasons
  from unnest(_ids, _epochs, _states, _errors) as u (id, epoch, state, error)
  join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
  where j.id = any (_ids) and coalesce(u.state, _states[1]) = 'cancelled';
  return stepwell.begin_undo(_cancelled, '{cancelled}', _reasons);
end
$$;
