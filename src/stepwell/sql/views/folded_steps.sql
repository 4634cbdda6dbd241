-- Saved steps as history keeps them: [key, n, kind, epoch, saved_at, seconds, fingerprint, value, more]. Every step
-- passes here when its job ends, and most have no "more", so the format is short.
create or replace view stepwell.folded_steps as
select s.job_id, s.n,
  json_build_array(
    s.key, s.n, s.kind, s.epoch, extract(epoch from s.saved_at), s.seconds, s.fingerprint, s.value,
    case
      when s.pending or s.timed_out or s.undo or s.large or s.until is not null or s.child_id is not null
        or s.event is not null or s.error is not null
      then json_build_object(
        'pending', s.pending, 'timed_out', s.timed_out, 'undo', s.undo, 'large', s.large, 'until', s.until,
        'child_id', s.child_id, 'event', s.event, 'event_key', s.event_key, 'event_id', s.event_id, 'error', s.error
      )
    end
  ) as folded
from stepwell.step s;

comment on view stepwell.folded_steps is
  'For stepwell.to_history: each saved step in the format of stepwell.history.steps, which stepwell.unfold reads.';
