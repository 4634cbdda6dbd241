-- The registered workers.
create or replace view stepwell.workers as
select w.id, w.host, w.pid, w.version, w.queues, array(select jsonb_object_keys(w.tasks) order by 1) as tasks,
  w.concurrency, w.running, w.started_at, w.renewed_at, w.lease_until, w.lease_until > stepwell.now() as alive,
  w.owner, l.worker_id is not null as leads,
  exists (
    select from stepwell.control p
    where p.action = 'pause' and (p.scope = 'everything' or (p.scope = 'worker' and p.name = w.id::text))
  ) as paused, exists (select from stepwell.stopping_workers s where s.id = w.id) as stopping,
  w.named
from stepwell.worker w
left join stepwell.leader l on l.worker_id = w.id and l.lease_until > stepwell.now();

comment on view stepwell.workers is 'Registered workers; alive: the lease has not ended.';
