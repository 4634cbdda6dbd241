-- The saved steps of live and finished jobs.
create or replace view stepwell.steps as
select s.job_id, s.n, s.key, s.kind, s.pending, s.timed_out, s.value, s.large, s.error, s.saved_at, s.seconds, s.until,
  s.child_id, s.event, nullif(s.event_key, '') as event_key
from stepwell.step s
where s.kind <> 'taken'
union all
select h.id, u.n, u.key, u.kind, u.pending, u.timed_out, u.value, u.large, u.error, u.saved_at, u.seconds, u.until,
  u.child_id, u.event, nullif(u.event_key, '')
from stepwell.history h
cross join lateral stepwell.unfold(h.steps) u
where h.steps is not null and h.expires_at > (select stepwell.now()) and u.kind <> 'taken';

comment on view stepwell.steps is
  'The saved steps of every job that has not expired. stepwell.large_value returns the value of a large step.';
