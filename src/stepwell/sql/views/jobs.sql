-- All jobs, live and finished: the readable face of the private tables. Expired jobs are hidden, pruned or not. The
-- condition is outside the union: inside, Postgres could not walk along an index from the newest job.
create or replace view stepwell.jobs as
select a.id, a.state, a.task, a.queue, a.priority, a.args, a.metadata, a.result, a.error, a.progress, a.epoch,
  a.attempt, a.max_attempts, a.cancelling, a.worker_id, a.enqueued_at, a.run_at, a.claimed_at, a.finished_at,
  a.expires_at, a.schedule_id, a.scheduled_for, a.cursor, a.parent_id, a.forked_from, a.undoing, a.owner,
  a.misfit_until,
  -- The headers of the job are stored with its policy.
  case
    when a.policy -> 'headers' is null then a.policy
    else nullif(a.policy::jsonb - 'headers', '{}')::json
  end as policy,
  a.policy -> 'headers' as headers, a.group_id
from (
  select j.id, j.state, j.task, j.queue, -j.rank::integer as priority, j.args, j.metadata, null::json as result,
    coalesce(j.reason, case when j.worker_id is null and j.run_at = j.misfit_until then j.misfit end) as error,
    j.progress, j.epoch, j.attempt, j.max_attempts, j.cancelling, j.worker_id, j.enqueued_at, j.run_at,
    j.claimed_at, null::timestamptz as finished_at, null::timestamptz as expires_at, j.schedule_id, j.scheduled_for,
    j.cursor, j.parent_id, j.forked_from, j.undoing is not null as undoing, j.owner,
    case when j.worker_id is null and j.run_at = j.misfit_until then j.misfit_until end as misfit_until,
    j.policy, j.group_id
  from stepwell.job j
  union all
  select h.id, h.state, h.task, h.queue, -h.rank::integer, h.args, h.metadata, h.result,
    h.error, null::json, h.epoch, h.attempt, h.max_attempts, false, h.worker_id, h.enqueued_at,
    h.run_at, h.claimed_at, h.finished_at, h.expires_at, h.schedule_id, h.scheduled_for, h.cursor, h.parent_id,
    h.forked_from, false, h.owner, null::timestamptz, h.policy, h.group_id
  from stepwell.history h
) a
where a.expires_at is null or a.expires_at > (select stepwell.now());

comment on view stepwell.jobs is 'Every job that has not expired, in any state.';
