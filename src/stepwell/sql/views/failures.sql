-- The failed attempts that have not expired.
create or replace view stepwell.failures as
select f.job_id, f.epoch, f.attempt, f.reason, f.type, f.message, f.traceback, f.worker_id, f.claimed_at, f.failed_at,
  f.expires_at
from stepwell.failure f
where f.expires_at > (select stepwell.now());

comment on view stepwell.failures is 'Every attempt that did not succeed and has not expired.';
