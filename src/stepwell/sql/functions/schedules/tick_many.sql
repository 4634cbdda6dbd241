-- Fire those schedules of _ids together that have no run to replace, each as stepwell.tick_one does. Returns how many
-- jobs were enqueued, and which schedules another session has locked. It does not wait for locks. If a row cannot be
-- written, the function raises, and no schedule is fired.
create or replace function stepwell.tick_many(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[],
  _tick_ids uuid[],
  _tick_ats timestamptz[],
  out enqueued integer,
  out held uuid[]
)
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _due uuid[];
  _locked uuid[];
  _job_ids uuid[] := stepwell.uuids7(cardinality(_tick_ids));
  _fired record;
begin
  held := '{}';
  -- Schedules that another worker has fired, and ticks computed long ago, are left out, as in stepwell.tick_one.
  _due := array(
    select s.id
    from unnest(_ids, _versions, _dues, _nexts) as u (id, version, due, next)
    join stepwell.schedule s on s.id = u.id and s.version = u.version and s.next_tick_at = u.due
    where s.id = any (_ids) and s.next_tick_at <= _now and (u.next < _now - interval '5 seconds') is not true
      and (s.overlap <> 'replace' or not stepwell.has_live_run(s.id))
  );
  _locked := array(
    select l.id
    from (
      select s.id, s.version, s.next_tick_at, s.overlap from stepwell.schedule s
      where s.id = any (_due)
      order by s.id
      for update skip locked
    ) l
    -- Check again under the lock.
    join unnest(_ids, _versions, _dues) as u (id, version, due)
      on l.id = u.id and l.version = u.version and l.next_tick_at = u.due
    where l.overlap <> 'replace' or not stepwell.has_live_run(l.id)
  );
  if cardinality(_locked) < cardinality(_due) then
    held := array(select d.id from unnest(_due) as d (id) except select l.id from unnest(_locked) as l (id));
  end if;

  with firing as materialized (
    select f.id, f.at, f.job_id, f.task, f.queue, f.rank, f.args, f.owner, f.metadata, f.max_attempts,
      f.policy, f.overlap, f.live, f.jitter,
      case
        when f.catchup = 0 and f.at < _now - interval '1 minute' then 'missed'
        when f.overlap = 'skip' and f.live then 'overlap'
        when f.overlap = 'replace' and f.at < f.last then 'overlap'
      end as skipped
    from (
      select s.id, t.at, t.job_id, max(t.at) over (partition by t.id) as last, s.task, s.queue, s.rank, s.args,
        s.metadata, s.max_attempts, s.policy, s.overlap, s.jitter, s.catchup,
        case when s.named then s.owner end as owner,
        -- As a join, this would read the runs of all schedules.
        s.overlap <> 'allow' and (
          select true from stepwell.job j
          where (j.state = 'blocked') = any ('{false,true}') and j.schedule_id = s.id limit 1
        ) is not null as live
      from unnest(_tick_ids, _tick_ats, _job_ids) as t (id, at, job_id)
      join stepwell.schedule s on s.id = t.id
      -- Never early, whatever the caller computed.
      where s.id = any (_locked) and t.at >= s.next_tick_at and t.at <= _now
        -- The records of these ticks were pruned, so they may have been fired.
        and (t.at <= s.forgotten_until) is not true
    ) f
  ), noted as (
    insert into stepwell.tick (schedule_id, at, handled_at, job_id, skipped)
    select f.id, f.at, _now, case when f.skipped is null then f.job_id end, f.skipped
    from firing f
    order by f.id, f.at
    on conflict on constraint tick_pkey do nothing
    returning schedule_id, at, job_id
  ), fired as materialized (
    select f.id, f.at, f.job_id, f.task, f.queue, f.rank, f.args, f.owner, f.metadata, f.max_attempts, f.policy,
      case when f.jitter > 0 then f.at + random() * f.jitter * interval '1 second' else f.at end as run_at,
      -- Of several missed ticks, each run waits for the one before.
      f.overlap <> 'allow' and (f.live or row_number() over (partition by f.id order by f.at) > 1) as blocked
    from firing f
    -- By job: a tick that is named twice runs once.
    join noted n on n.job_id = f.job_id
  ), moved as (
    update stepwell.schedule s
    set next_tick_at = u.next, last_tick_at = coalesce(n.at, s.last_tick_at),
      last_job_id = coalesce(n.job_id, s.last_job_id)
    from unnest(_ids, _nexts) as u (id, next)
    left join (select distinct on (f.id) f.id, f.at, f.job_id from fired f order by f.id, f.at desc) n on n.id = u.id
    where s.id = any (_locked) and s.id = u.id
  )
  select array_agg(f.job_id) as ids, array_agg(f.task) as tasks, array_agg(f.args::text) as args,
    array_agg(f.queue) as queues, array_agg(-f.rank::integer) as priorities, array_agg(f.run_at) as run_ats,
    array_agg(f.metadata::text) as metadata, array_agg(f.max_attempts) as max_attempts, array_agg(f.owner) as owners,
    array_agg(f.policy::text) as policies,
    array_agg(row(null, null, f.id, f.at, f.blocked)::stepwell.origin) as origins
  into _fired
  from fired f;
  enqueued := coalesce(cardinality(_fired.ids), 0);
  if enqueued > 0 then
    perform stepwell.insert_jobs(
      _now, _fired.ids, _fired.tasks, _fired.args, _fired.queues, _fired.priorities, null, _fired.run_ats,
      _fired.metadata, _fired.max_attempts, _fired.owners, _fired.policies, _fired.origins
    );
  end if;
end
$$;
