-- The workers that are registered, with what they run.
create or replace view stepwell.workers as
select w.id, w.host, w.pid, w.version, w.queues, array(select jsonb_object_keys(w.tasks) order by 1) as tasks,
  w.concurrency, w.running, w.started_at, w.renewed_at, w.lease_until, w.lease_until > stepwell.now() as alive
from stepwell.worker w;

comment on view stepwell.workers is 'Registered workers; alive: the lease holds.';
