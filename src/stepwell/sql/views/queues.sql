-- The queues that have live jobs or are paused or have settings, with the number of jobs in each state.
create or replace view stepwell.queues as
select coalesce(c.queue, p.name, l.name, k.name) as name, p.asked_at as paused_at,
  coalesce(c.ready, 0) as ready, coalesce(c.scheduled, 0) as scheduled, coalesce(c.running, 0) as running,
  coalesce(c.waiting, 0) as waiting, coalesce(c.blocked, 0) as blocked, c.oldest_ready_at, l.most as "limit",
  1 / l.spacing as rate, l.burst, k.keep, k.keep_failed
from (
  select j.queue,
    count(*) filter (where j.state = 'ready') as ready,
    count(*) filter (where j.state = 'scheduled') as scheduled,
    count(*) filter (where j.state = 'running') as running,
    count(*) filter (where j.state = 'waiting') as waiting,
    count(*) filter (where j.state = 'blocked') as blocked,
    -- The run_at of a job with a fair key is its turn, which may be long before it was enqueued.
    min(
      case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end
    ) filter (where j.state = 'ready') as oldest_ready_at
  from stepwell.job j
  group by j.queue
) c
full join (
  select p.name, p.asked_at from stepwell.control p where p.action = 'pause' and p.scope = 'queue'
) p on p.name = c.queue
full join stepwell.queue_setting l on l.name = coalesce(c.queue, p.name)
full join stepwell.queue_keep k on k.name = coalesce(c.queue, p.name, l.name);

comment on view stepwell.queues is 'Live jobs counted by queue and state. limit and rate: how many '
  'of them may run at once, and start per second, if that is set. keep and keep_failed: for how '
  'many seconds its jobs are kept after they succeeded, and after they failed or were cancelled, '
  'if that is set.';
