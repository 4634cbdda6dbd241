-- Schedules and their ticks, the leader, and control of the fleet.

alter table stepwell.job add column schedule_id uuid, add column scheduled_for timestamptz;
comment on column stepwell.job.schedule_id is 'The schedule that enqueued it; null: somebody else did.';
comment on column stepwell.job.scheduled_for is 'The tick it runs for.';
create index job_schedule on stepwell.job (schedule_id) where schedule_id is not null;
comment on index stepwell.job_schedule is 'Finds the live runs of a schedule.';

alter table stepwell.history add column schedule_id uuid, add column scheduled_for timestamptz;
comment on column stepwell.history.schedule_id is 'As on the job.';
comment on column stepwell.history.scheduled_for is 'As on the job.';

create table stepwell.schedule (
  id uuid not null,
  owner text not null,
  name text not null,
  task text not null,
  args json not null,
  queue text not null,
  rank smallint not null,
  cron text,
  tz text,
  every double precision,
  overlap text not null,
  catchup integer not null,
  jitter double precision not null,
  declared boolean not null,
  declared_at timestamptz not null,
  version integer not null default 1,
  created_at timestamptz not null,
  paused_at timestamptz,
  next_tick_at timestamptz,
  last_tick_at timestamptz,
  last_job_id uuid,
  forgotten_until timestamptz,
  constraint schedule_pkey primary key (id),
  constraint schedule_name unique (owner, name),
  constraint schedule_has_one_timing check ((cron is null) <> (every is null) and (cron is null) = (tz is null)),
  constraint schedule_every check (every > 0),
  constraint schedule_overlap check (overlap in ('skip', 'allow', 'queue', 'replace')),
  -- What Python could not reckon with, or not in time, must not get in by SQL.
  constraint schedule_catchup check (catchup between 0 and 1000),
  constraint schedule_next_tick_at check (next_tick_at >= '1970-01-01 00:00+00' and next_tick_at < '9999-12-31 00:00+00'),
  constraint schedule_jitter check (jitter >= 0),
  constraint schedule_pause check (paused_at is null or next_tick_at is null)
) with (fillfactor = 50);
comment on table stepwell.schedule is 'What is enqueued by cron or at an interval. Any worker computes its ticks; the row decides whether they count.';
comment on column stepwell.schedule.id is 'New whenever a schedule is made.';
comment on column stepwell.schedule.owner is 'The name of the app it belongs to: services that share a database leave each other''s alone.';
comment on column stepwell.schedule.name is 'Its name, unique for the owner.';
comment on column stepwell.schedule.task is 'The task it enqueues.';
comment on column stepwell.schedule.args is 'With these arguments.';
comment on column stepwell.schedule.queue is 'In this queue.';
comment on column stepwell.schedule.rank is 'Minus the priority of its jobs.';
comment on column stepwell.schedule.cron is 'When, as cron text; null: at an interval.';
comment on column stepwell.schedule.tz is 'The time zone that the cron text means.';
comment on column stepwell.schedule.every is 'The interval in seconds, counted from 1970; null: by cron.';
comment on column stepwell.schedule.overlap is 'What a tick does while a run is still live: skip, allow, queue (wait for its end) or replace (cancel it).';
comment on column stepwell.schedule.catchup is 'How many ticks that were missed are run, the newest: 0, 1 or more.';
comment on column stepwell.schedule.jitter is 'A job is put off by up to so many seconds, at random.';
comment on column stepwell.schedule.declared is 'Defined in code; false: made at run time.';
comment on column stepwell.schedule.declared_at is 'When a live worker last had it in its code.';
comment on column stepwell.schedule.version is 'Grows with each change, so that ticks reckoned from an older definition are refused.';
comment on column stepwell.schedule.created_at is 'When it was made.';
comment on column stepwell.schedule.paused_at is 'Nothing is enqueued since then; null: it is not paused.';
comment on column stepwell.schedule.next_tick_at is 'When it is due; null: paused, or never again.';
comment on column stepwell.schedule.last_tick_at is 'The tick of the last run that was enqueued.';
comment on column stepwell.schedule.last_job_id is 'That run.';
comment on column stepwell.schedule.forgotten_until is 'Of its ticks up to this one no record is kept, so none up to it is fired again.';

comment on index stepwell.schedule_name is 'A name is unique for its owner.';
create index schedule_due on stepwell.schedule (next_tick_at) where next_tick_at is not null;
comment on index stepwell.schedule_due is 'Finds what is due, and when the next one will be.';

create table stepwell.tick (
  schedule_id uuid not null,
  at timestamptz not null,
  handled_at timestamptz not null,
  job_id uuid,
  skipped text,
  triggered boolean not null default false,
  -- The last word on firing twice, whoever ticks.
  constraint tick_pkey primary key (schedule_id, at),
  constraint tick_is_a_run_or_skipped check ((job_id is null) <> (skipped is null))
);
comment on table stepwell.tick is 'What became of each tick of a schedule; the newest thousand are kept.';
comment on column stepwell.tick.schedule_id is 'The schedule.';
comment on column stepwell.tick.at is 'The time it was due.';
comment on column stepwell.tick.handled_at is 'When a worker saw to it.';
comment on column stepwell.tick.job_id is 'The job that was enqueued.';
comment on column stepwell.tick.skipped is 'Why none was: overlap (a run was still live) or missed (too late, and catchup is 0).';
comment on column stepwell.tick.triggered is 'By hand, out of turn.';

create table stepwell.control (
  action text not null,
  scope text not null,
  name text not null,
  asked_at timestamptz not null,
  up_to integer,
  constraint control_pkey primary key (action, scope, name),
  constraint control_action check (action in ('pause', 'stop')),
  constraint control_scope check (scope in ('everything', 'queue', 'task', 'worker')),
  constraint control_everything_has_no_name check ((scope = 'everything') = (name = '')),
  constraint control_stop_is_up_to check ((action = 'stop') = (up_to is not null))
);
comment on table stepwell.control is 'What was asked of the fleet. A pause lasts until it is resumed; a stop is for the workers that had started by then.';
comment on column stepwell.control.action is 'pause or stop.';
comment on column stepwell.control.scope is 'everything, queue, task or worker.';
comment on column stepwell.control.name is 'Which queue, task or worker (its id); empty for everything.';
comment on column stepwell.control.asked_at is 'When it was asked, for a stop the last time.';
comment on column stepwell.control.up_to is 'A stop is for the workers with numbers up to this one: clocks may be set, numbers only grow.';

insert into stepwell.control (action, scope, name, asked_at)
select 'pause', 'queue', q.name, q.paused_at from stepwell.queue q where q.paused_at is not null;
drop view if exists stepwell.queues;
drop table stepwell.queue;

create table stepwell.leader (
  only_row boolean not null default true,
  worker_id uuid not null,
  since timestamptz not null,
  lease_until timestamptz not null,
  constraint leader_pkey primary key (only_row),
  constraint leader_is_one check (only_row)
) with (fillfactor = 50);
comment on table stepwell.leader is 'The worker that does the upkeep for all. Others step in when it falls silent, and nothing breaks if two believe they lead.';
comment on column stepwell.leader.only_row is 'There is one row at most.';
comment on column stepwell.leader.worker_id is 'Who leads.';
comment on column stepwell.leader.since is 'Since when.';
comment on column stepwell.leader.lease_until is 'Unless it renews, others may lead from then on.';

alter table stepwell.worker
  add column begun integer,
  add column owner text,
  add column schedules text[] not null default '{}',
  add column stale_after double precision;
comment on column stepwell.worker.begun is 'Its number when it started, should it have lost its lease since and have another now; null: it is the same.';
comment on column stepwell.worker.owner is 'The name of its app.';
comment on column stepwell.worker.schedules is 'The schedules that stand in its code.';
comment on column stepwell.worker.stale_after is 'Its owner''s schedules that have stood in no live worker''s code for so many seconds are removed; null: they are kept.';

-- What they return has changed.
drop function if exists stepwell.renew(uuid, double precision, integer);
drop function if exists stepwell.claim(uuid, text[], integer[], timestamptz[], uuid[], text[], integer);

create table stepwell.stat (
  minute timestamptz not null,
  task text not null,
  queue text not null,
  succeeded integer not null default 0,
  failed integer not null default 0,
  cancelled integer not null default 0,
  handed_back integer not null default 0,
  seconds double precision not null default 0,
  constraint stat_pkey primary key (minute, task, queue)
) with (fillfactor = 70);
comment on table stepwell.stat is 'How runs ended, counted by the minute: workers add up in memory and write now and then. What a killed worker had not written is not in it.';
comment on column stepwell.stat.minute is 'The minute in which it was written.';
comment on column stepwell.stat.task is 'The task.';
comment on column stepwell.stat.queue is 'The queue.';
comment on column stepwell.stat.succeeded is 'Runs that succeeded.';
comment on column stepwell.stat.failed is 'Runs that failed, whether they are tried again or not.';
comment on column stepwell.stat.cancelled is 'Runs that were cancelled.';
comment on column stepwell.stat.handed_back is 'Runs that were snoozed, or stopped by a shutdown: they did not count.';
comment on column stepwell.stat.seconds is 'How long all of them ran, added up.';
