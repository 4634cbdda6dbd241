-- A saved step as history keeps it: [key, n, kind, epoch, saved_at, seconds, fingerprint, value, more]. Most steps have no more than that,
-- and every one of them passes here when its job ends: so it is short, and one expression, which Postgres expands in place.
create or replace function stepwell.step_json(_step stepwell.step) returns json
language sql immutable
as $$
  select json_build_array(
    _step.key, _step.n, _step.kind, _step.epoch, extract(epoch from _step.saved_at), _step.seconds,
    _step.fingerprint, _step.value,
    case
      when _step.pending or _step.timed_out or _step.undo or _step.large
        or _step.until is not null or _step.child_id is not null or _step.event is not null or _step.error is not null
      then json_build_object(
        'pending', _step.pending, 'timed_out', _step.timed_out, 'undo', _step.undo, 'large', _step.large,
        'until', _step.until, 'child_id', _step.child_id, 'event', _step.event,
        'event_key', _step.event_key, 'event_id', _step.event_id, 'error', _step.error
      )
    end
  )
$$;
