begin;
select pg_advisory_xact_lock(1937007983, 0);
set local check_function_bodies = off;
-- Runs before the first migration: the schema itself and the record of what was applied.
--
-- Advisory locks that stepwell takes, by their first key; each database has its own.
--   1937007980, 0       shared: somebody waits for results (waiter, notify_done)
--   1937007981, number  a worker lives (renew, rescue)
--   1937007982, 0       partitions are being made or dropped (make_partitions, prune)
--   1937007983, 0       the schema is being migrated (migrate)
--   1937007984, hash    shared: an event of that name is being delivered; else: is looked for (deliver_events, take_events)
-- Not "if not exists", which asks for the right to create one even where there is nothing to create.
do $$
begin
  if to_regnamespace('stepwell') is null then
    create schema stepwell;
  end if;
end
$$;
comment on schema stepwell is 'Stepwell: background jobs and durable steps. Made and changed by "stepwell migrate".';

create table if not exists stepwell.migration (
  version integer not null,
  name text not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint migration_pkey primary key (version)
);
comment on table stepwell.migration is 'The migrations applied to this schema; the highest version is the schema''s.';
comment on column stepwell.migration.version is 'The number in the file''s name.';
comment on column stepwell.migration.name is 'The file''s name.';
comment on column stepwell.migration.applied_at is 'When it was applied.';

-- The core: live jobs, their history, failed attempts, workers and queues.
-- Tables are private: functions and views are the contract.

create type stepwell.state as enum (
  'scheduled', 'ready', 'running', 'waiting', 'blocked', 'succeeded', 'failed', 'cancelled'
);
comment on type stepwell.state is
  'scheduled, ready, running, waiting and blocked jobs live in stepwell.job; succeeded, failed and cancelled ones in stepwell.history.';

create table stepwell.job (
  id uuid not null,
  run_at timestamptz not null,
  enqueued_at timestamptz not null,
  claimed_at timestamptz,
  worker_id uuid,
  epoch integer not null default 0,
  attempt integer not null default 0,
  max_attempts integer,
  rank smallint not null default 0,
  cancelling boolean not null default false,
  state stepwell.state not null,
  task text not null,
  queue text not null,
  args json not null,
  metadata jsonb,
  progress json,
  reason text,
  constraint job_pkey primary key (id),
  -- By this, and its counterpart on history, a look for one state does not search the other table.
  constraint job_is_live check (state < 'succeeded')
) with (
  fillfactor = 80,
  -- Every job leaves two dead rows behind, so the table is vacuumed early, often and without pauses.
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_analyze_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
comment on table stepwell.job is 'Live jobs only: a finished job moves to stepwell.history in the statement that finishes it.';
comment on column stepwell.job.id is 'uuid version 7, made by the database; the same id in history.';
comment on column stepwell.job.run_at is 'Not before this time. Among ready jobs of one rank the earliest goes first.';
comment on column stepwell.job.enqueued_at is 'When the job was put in.';
comment on column stepwell.job.claimed_at is 'When a worker last took it.';
comment on column stepwell.job.worker_id is 'Who runs it. Set exactly while the state is running.';
comment on column stepwell.job.epoch is 'How often it was claimed. (id, epoch) is the fence on every later write: a late worker matches no row.';
comment on column stepwell.job.attempt is 'Counted tries so far, the running one included. Snoozes and clean shutdowns give theirs back.';
comment on column stepwell.job.max_attempts is 'Overrides what the task says; null: the task decides.';
comment on column stepwell.job.rank is 'Minus the priority, so that the whole claim order runs upwards.';
comment on column stepwell.job.cancelling is 'A cancel was asked for while it ran; its worker is told.';
comment on column stepwell.job.state is 'One of the live states.';
comment on column stepwell.job.task is 'The name under which a worker registered the function.';
comment on column stepwell.job.queue is 'A name; a worker claims only from the queues it was started with.';
comment on column stepwell.job.args is 'The arguments by name, a JSON object, kept as it was written.';
comment on column stepwell.job.metadata is 'Whatever the enqueuer wants to find the job by; null: nothing.';
comment on column stepwell.job.progress is 'What the running handler last said of its progress.';
comment on column stepwell.job.reason is 'Why the cancel was asked for.';

create index job_ready on stepwell.job (queue, rank, run_at, id) where state = 'ready';
create index job_due on stepwell.job (run_at) where state = 'scheduled';
create index job_running on stepwell.job (worker_id) where state = 'running';
create index job_cancelling on stepwell.job (worker_id) where cancelling;
comment on index stepwell.job_ready is 'Exactly the claim order: a claim is one walk along it.';
comment on index stepwell.job_due is 'Finds what is due, and when the next one will be.';
comment on index stepwell.job_running is 'Finds what a dead worker held.';
comment on index stepwell.job_cancelling is 'Finds what a worker must be told to stop.';

create table stepwell.history (
  id uuid not null,
  expires_at timestamptz not null,
  finished_at timestamptz not null,
  run_at timestamptz not null,
  enqueued_at timestamptz not null,
  claimed_at timestamptz,
  worker_id uuid,
  epoch integer not null,
  attempt integer not null,
  max_attempts integer,
  rank smallint not null,
  state stepwell.state not null,
  task text not null,
  queue text not null,
  args json not null,
  metadata jsonb,
  result json,
  error text,
  constraint history_is_finished check (state >= 'succeeded')
) partition by range (expires_at);
comment on table stepwell.history is 'Finished jobs, append-only, one partition per day of expiry; pruning drops whole partitions.';
comment on column stepwell.history.id is 'The job''s id.';
comment on column stepwell.history.expires_at is 'Kept until then, by the task''s retention; infinity: for ever.';
comment on column stepwell.history.finished_at is 'When it succeeded, failed for good or was cancelled.';
comment on column stepwell.history.run_at is 'When it was due.';
comment on column stepwell.history.enqueued_at is 'When it was put in.';
comment on column stepwell.history.claimed_at is 'When its last run began; null: it never ran.';
comment on column stepwell.history.worker_id is 'Who ran it last.';
comment on column stepwell.history.epoch is 'How often it was claimed; goes on counting after a retry.';
comment on column stepwell.history.attempt is 'Counted tries.';
comment on column stepwell.history.max_attempts is 'As on the job.';
comment on column stepwell.history.rank is 'Minus the priority.';
comment on column stepwell.history.state is 'succeeded, failed or cancelled.';
comment on column stepwell.history.task is 'The task''s name.';
comment on column stepwell.history.queue is 'The queue it came from.';
comment on column stepwell.history.args is 'The arguments, so that it can be retried.';
comment on column stepwell.history.metadata is 'As on the job.';
comment on column stepwell.history.result is 'What the handler returned; null unless it succeeded.';
comment on column stepwell.history.error is 'Why it failed or was cancelled, in a line; stepwell.failure has the rest.';

create index history_id on stepwell.history (id);
create index history_failed on stepwell.history (id) where state = 'failed';
comment on index stepwell.history_id is 'Finds a finished job; ids grow with time, so this is also the newest-first order.';
comment on index stepwell.history_failed is 'Lists what failed without a walk over what did not.';

create table stepwell.failure (
  job_id uuid not null,
  expires_at timestamptz not null,
  failed_at timestamptz not null,
  claimed_at timestamptz,
  worker_id uuid,
  epoch integer not null,
  attempt integer not null,
  reason text not null,
  type text not null,
  message text not null,
  traceback text
) partition by range (expires_at);
comment on table stepwell.failure is 'One row for each attempt that did not succeed; partitioned and pruned as history is.';
comment on column stepwell.failure.job_id is 'The job.';
comment on column stepwell.failure.expires_at is 'Kept until then, by the task''s retention for failures.';
comment on column stepwell.failure.failed_at is 'When the attempt ended.';
comment on column stepwell.failure.claimed_at is 'When it began.';
comment on column stepwell.failure.worker_id is 'Who ran it.';
comment on column stepwell.failure.epoch is 'Which run it was; unique for a job.';
comment on column stepwell.failure.attempt is 'Which counted try it was.';
comment on column stepwell.failure.reason is 'error, timeout, lease_lost, bad_args or bad_result.';
comment on column stepwell.failure.type is 'The exception''s type.';
comment on column stepwell.failure.message is 'Its message.';
comment on column stepwell.failure.traceback is 'Its traceback, if there was one.';

create index failure_job on stepwell.failure (job_id, epoch);
comment on index stepwell.failure_job is 'The failed attempts of a job, in order.';

-- What is kept for ever has its own partition, so that the default one, which takes whatever finds no
-- partition made ahead, stays all but empty and a new day can be attached without a long scan of it.
create table stepwell.history_forever partition of stepwell.history for values from ('infinity') to (maxvalue);
create table stepwell.history_default partition of stepwell.history default;
create table stepwell.failure_forever partition of stepwell.failure for values from ('infinity') to (maxvalue);
create table stepwell.failure_default partition of stepwell.failure default;

create table stepwell.worker (
  id uuid not null,
  number integer generated always as identity,
  host text not null,
  pid integer not null,
  version text not null,
  queues text[] not null,
  tasks jsonb not null,
  concurrency integer not null,
  running integer not null default 0,
  started_at timestamptz not null,
  renewed_at timestamptz not null,
  lease_until timestamptz not null,
  lock_held boolean not null default false,
  lock_missing_since timestamptz,
  constraint worker_pkey primary key (id)
) with (fillfactor = 50);
comment on table stepwell.worker is 'Live workers. Whoever removes a row gives its running jobs back in the same transaction.';
comment on column stepwell.worker.id is 'New at every start.';
comment on column stepwell.worker.number is 'Names the advisory lock that the worker''s session holds while it lives.';
comment on column stepwell.worker.host is 'The machine it runs on.';
comment on column stepwell.worker.pid is 'Its process id there.';
comment on column stepwell.worker.version is 'The version of stepwell it runs.';
comment on column stepwell.worker.queues is 'The queues it claims from.';
comment on column stepwell.worker.tasks is 'The tasks it registered, each with the limits that rescue needs: {"max_attempts", "keep_failed"}.';
comment on column stepwell.worker.concurrency is 'How many jobs it runs at once.';
comment on column stepwell.worker.running is 'How many it ran when it last renewed.';
comment on column stepwell.worker.started_at is 'When it registered.';
comment on column stepwell.worker.renewed_at is 'When it last renewed its lease.';
comment on column stepwell.worker.lease_until is 'Its right to hold its jobs ends then.';
comment on column stepwell.worker.lock_held is 'Its session held the advisory lock at the last renewal. Behind a pooler it may not: then only the lease tells.';
comment on column stepwell.worker.lock_missing_since is 'A peer first found that lock free at this time; null: it is held.';

create table stepwell.queue (
  name text not null,
  paused_at timestamptz,
  constraint queue_pkey primary key (name)
);
comment on table stepwell.queue is 'What is set for a queue. A queue without a row has no settings; jobs do not need one.';
comment on column stepwell.queue.name is 'The name that jobs carry.';
comment on column stepwell.queue.paused_at is 'Nothing is claimed from it since then; null: it is not paused.';

create table stepwell.clock (
  at timestamptz not null
);
comment on table stepwell.clock is 'For tests: while it has a row, stepwell.now() stands still at that time. Empty in production.';
comment on column stepwell.clock.at is 'What stepwell.now() returns.';

insert into stepwell.migration (version, name) values (1, '0001_core');
-- Functions only: ids are made for a whole batch at once.

insert into stepwell.migration (version, name) values (2, '0002_batch_ids');
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

insert into stepwell.migration (version, name) values (3, '0003_time_and_cluster');
-- Durable steps: what jobs have saved, what they wait for, events, and children.

alter table stepwell.job
  add column durable boolean not null default false,
  add column awaits integer,
  add column cursor text,
  add column input json,
  add column parent_id uuid,
  add column parent_key text,
  add column forked_from uuid,
  add column undoing json;
comment on column stepwell.job.durable is 'It may have rows in stepwell.step; plain jobs never look.';
comment on column stepwell.job.awaits is 'While it waits: for how many groups of its steps. It goes on when one of them is complete.';
comment on column stepwell.job.cursor is 'The step of a chain, or the state of a machine, at which it stands; null: the first.';
comment on column stepwell.job.input is 'What that step was given; null with the first, which has the args.';
comment on column stepwell.job.parent_id is 'The job that spawned it; null: none did.';
comment on column stepwell.job.parent_key is 'The step by which that job did so.';
comment on column stepwell.job.forked_from is 'The job whose steps it began with.';
comment on column stepwell.job.undoing is 'It has failed or was cancelled, and its steps are being undone: how it ends then. Null: it is not.';
create index job_parent on stepwell.job (parent_id) where parent_id is not null;
comment on index stepwell.job_parent is 'Finds the live children of a job.';

drop index stepwell.job_due;
create index job_due on stepwell.job (run_at) where state in ('scheduled', 'waiting');
comment on index stepwell.job_due is 'Finds what is due, and when the next one will be. What waits without a limit is due at infinity.';

alter table stepwell.history
  add column cursor text,
  add column input json,
  add column parent_id uuid,
  add column parent_key text,
  add column forked_from uuid,
  add column failed_step text,
  add column steps json;
comment on column stepwell.history.cursor is 'As on the job.';
comment on column stepwell.history.input is 'As on the job.';
comment on column stepwell.history.parent_id is 'As on the job.';
comment on column stepwell.history.parent_key is 'As on the job.';
comment on column stepwell.history.forked_from is 'As on the job.';
comment on column stepwell.history.failed_step is 'The step whose saved error the job failed with; a retry takes that one anew.';
comment on column stepwell.history.steps is 'What stepwell.step had of it, in order; null: nothing.';

create table stepwell.step (
  job_id uuid not null,
  saved_at timestamptz not null,
  until timestamptz,
  event_id bigint,
  child_id uuid,
  seconds double precision,
  n integer not null,
  epoch integer not null,
  fingerprint integer,
  awaited integer,
  pending boolean not null default false,
  timed_out boolean not null default false,
  undo boolean not null default false,
  large boolean not null default false,
  kind text not null,
  key text not null,
  event text,
  event_key text,
  value json,
  error json,
  constraint step_pkey primary key (job_id, key)
) with (
  fillfactor = 90,
  -- As the table of jobs: every row is deleted when its job ends.
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_analyze_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
comment on table stepwell.step is 'What live jobs have saved: each step once. Folded into stepwell.history when the job ends.';
comment on column stepwell.step.job_id is 'The job. There is no foreign key: it would be looked up for each job that ends.';
comment on column stepwell.step.saved_at is 'When it was written.';
comment on column stepwell.step.until is 'A sleep ends then, a wait is given up then; null: it is neither, or has no limit.';
comment on column stepwell.step.event_id is 'The event that ended the wait.';
comment on column stepwell.step.child_id is 'The job that was spawned.';
comment on column stepwell.step.seconds is 'How long it took.';
comment on column stepwell.step.n is 'Its place in the order in which the job came to its steps.';
comment on column stepwell.step.epoch is 'The run that saved it.';
comment on column stepwell.step.fingerprint is 'A checksum of its arguments, by which a change of them is noticed; null: they have none.';
comment on column stepwell.step.awaited is 'The group in which the job waits for it; null: in none.';
comment on column stepwell.step.pending is 'It has begun and not ended: a sleep, a wait, a child.';
comment on column stepwell.step.timed_out is 'The wait was given up.';
comment on column stepwell.step.undo is 'It is undone should the job fail or be cancelled.';
comment on column stepwell.step.large is 'Its value stands in stepwell.large_value.';
comment on column stepwell.step.kind is 'step, transaction, retry, sleep, wait, receive, child, first, now, random, uuid, patch, state, undo; or taken: an event from before a restart.';
comment on column stepwell.step.key is 'Its name, unique in the job.';
comment on column stepwell.step.event is 'The event it waits for.';
comment on column stepwell.step.event_key is 'The key of that event; empty: it has none.';
comment on column stepwell.step.value is 'What came of it.';
comment on column stepwell.step.error is 'How it failed: type, message and, of a child, its state; null: it did not.';

create index step_pending on stepwell.step (job_id, awaited) where pending;
create index step_waiting on stepwell.step (event, event_key) where pending and event is not null;
comment on index stepwell.step_pending is 'Tells whether a group that a job waits for is complete.';
comment on index stepwell.step_waiting is 'Finds who waits for an event.';

create table stepwell.large_value (
  job_id uuid not null,
  expires_at timestamptz not null,
  key text not null,
  value json not null,
  constraint large_value_pkey primary key (job_id, key)
);
comment on table stepwell.large_value is 'Values of steps over 64 KB: read when they are asked for, not with each claim. They expire with the job''s history.';
comment on column stepwell.large_value.job_id is 'The job.';
comment on column stepwell.large_value.expires_at is 'When the job''s history expires; infinity while it lives.';
comment on column stepwell.large_value.key is 'The step.';
comment on column stepwell.large_value.value is 'Its value.';
create index large_value_expires on stepwell.large_value (expires_at);
comment on index stepwell.large_value_expires is 'Finds what has expired.';

create table stepwell.event (
  id bigint generated always as identity,
  emitted_at timestamptz not null,
  expires_at timestamptz not null,
  transaction xid8 not null default pg_current_xact_id(),
  job_id uuid,
  name text not null,
  key text not null,
  value json,
  constraint event_pkey primary key (id)
);
comment on table stepwell.event is 'What was emitted, for all who wait for it or will, and what was sent to one job. Each wait takes the oldest that its job has not taken yet.';
comment on column stepwell.event.id is 'In the order of emission.';
comment on column stepwell.event.emitted_at is 'When it was emitted.';
comment on column stepwell.event.expires_at is 'Kept until then, for waits that begin later.';
comment on column stepwell.event.transaction is 'Who delivers it: its own transaction, when that commits.';
comment on column stepwell.event.job_id is 'The one job it was sent to; null: it is for all.';
comment on column stepwell.event.name is 'Its name.';
comment on column stepwell.event.key is 'What it is about; empty: nothing in particular.';
comment on column stepwell.event.value is 'What it says.';
create index event_name on stepwell.event (name, key, id) where job_id is null;
create index event_sent on stepwell.event (job_id, name, id) where job_id is not null;
create index event_expires on stepwell.event (expires_at);
comment on index stepwell.event_name is 'Finds what was emitted before a wait began.';
comment on index stepwell.event_sent is 'Finds what was sent to a job, first in first out.';
comment on index stepwell.event_expires is 'Finds what has expired.';

-- What it returns has changed.
drop function if exists stepwell.claim(uuid, text[], integer[], timestamptz[], uuid[], text[], integer, double precision[]);
-- They have more parameters now.
drop function if exists stepwell.finish(uuid[], integer[], text[], double precision[], stepwell.state[], text[]);
drop function if exists stepwell.fail(
  uuid[], integer[], text[], text[], text[], text[], double precision[], integer[], double precision[]
);
drop function if exists stepwell.retry(uuid[]);

-- Deferred: who emits in a long transaction must not hold up those who are about to wait.
create or replace function stepwell.deliver_events() returns trigger language plpgsql as 'begin return null; end';
create constraint trigger event_delivery after insert on stepwell.event
deferrable initially deferred for each row execute function stepwell.deliver_events();

insert into stepwell.migration (version, name) values (4, '0004_durable_steps');
-- The functions of durable steps, mended: they are replaced whole after this.

comment on column stepwell.history.failed_step is 'The step at which the job failed, whether anything was saved of it or not; a retry takes that one anew.';

insert into stepwell.migration (version, name) values (5, '0005_steps_mended');

select set_config('stepwell.functions', coalesce(string_agg(p.oid || ' ' || p.ctid::text, ';'), ''), true)
from pg_proc p where p.pronamespace = 'stepwell'::regnamespace;
-- Add to this minute's counters: the k-th element of each array is for _tasks[k] in _queues[k].
create or replace function stepwell.add_stats(
  _tasks text[],
  _queues text[],
  _succeeded integer[],
  _failed integer[],
  _cancelled integer[],
  _handed_back integer[],
  _seconds double precision[]
) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into stepwell.stat as s (minute, task, queue, succeeded, failed, cancelled, handed_back, seconds)
  select date_trunc('minute', stepwell.now()), u.task, u.queue, u.succeeded, u.failed, u.cancelled, u.handed_back, u.seconds
  from unnest(_tasks, _queues, _succeeded, _failed, _cancelled, _handed_back, _seconds)
    as u (task, queue, succeeded, failed, cancelled, handed_back, seconds)
  -- In order, as workers that write at the same moment do: so none waits for one that waits for it.
  order by u.task, u.queue
  on conflict on constraint stat_pkey do update
  set succeeded = s.succeeded + excluded.succeeded, failed = s.failed + excluded.failed,
    cancelled = s.cancelled + excluded.cancelled, handed_back = s.handed_back + excluded.handed_back,
    seconds = s.seconds + excluded.seconds
$$;
-- Let the next run of each of these schedules go, where none is live but those that wait for it. Null: of every schedule,
-- for upkeep, should a run have gone in a way that called nobody, or nobody have come to it. Returns how many.
-- The schedule's row is locked, so a tick that puts a run in line and the end of the run before it see each other. Whoever
-- ends a run must not wait for long, though: a row that somebody holds for a quarter of a second is left to upkeep; and a
-- run that somebody holds is being cancelled, by whom the next one is let go.
create or replace function stepwell.admit(_schedule_ids uuid[]) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[] := coalesce(
    _schedule_ids,
    array(select distinct j.schedule_id from stepwell.job j where j.schedule_id is not null and j.state = 'blocked' limit 1000)
  );
  _admitted integer;
  _queues text[];
  _due_in double precision;
begin
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  begin
    perform from stepwell.schedule s where s.id = any (_ids) and s.overlap <> 'allow' order by s.id for no key update;
  exception when lock_not_available then
    return 0;
  end;
  with first as (
    select distinct on (j.schedule_id) j.id
    from stepwell.job j
    where j.schedule_id = any (_ids) and j.state = 'blocked'
      and not exists (
        select from stepwell.job o where o.schedule_id = j.schedule_id and o.state <> 'blocked'
      )
    order by j.schedule_id, j.scheduled_for, j.id
  ), free as materialized (
    select j.id from stepwell.job j
    where j.id in (select f.id from first f) and j.state::text = 'blocked'
    order by j.id
    for no key update skip locked
  ), admitted as (
    update stepwell.job j
    set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
    where j.id in (select f.id from free f)
    returning j.queue, j.state, j.run_at
  )
  select count(*), array_agg(distinct a.queue) filter (where a.state = 'ready'),
    extract(epoch from min(a.run_at) filter (where a.state = 'scheduled') - _now)
  into _admitted, _queues, _due_in
  from admitted a;
  perform stepwell.notify_ready(_queues, _due_in);
  return _admitted;
end
$$;
-- Move running jobs on to the next step of their chain, or state of their machine, with fresh attempts. A job goes on in
-- its worker's hands, unless _delays[k] says that it waits for so many seconds, or _queues[k] that its next step is for
-- another queue. _lefts[k] is the step it leaves, when that was the first. Returns the ids that were refused by the fence.
create or replace function stepwell.advance(
  _ids uuid[],
  _epochs integer[],
  _lefts text[],
  _cursors text[],
  _inputs text[],
  _ns integer[],
  _delays double precision[] default null,
  _queues text[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _cancelling uuid[];
  _ready text[];
  _due_in double precision;
begin
  perform stepwell.lock_to_give_back(_ids);
  with given as materialized (
    select u.id, u.epoch, u.left_step, u.cursor, u.input, u.n, u.delay, u.queue, j.args
    from unnest(_ids, _epochs, _lefts, _cursors, _inputs, _ns, _delays, _queues)
      as u (id, epoch, left_step, cursor, input, n, delay, queue)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
  ), begun as (
    insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, value)
    select g.id, _now, g.n - 1, g.epoch, 'state', g.left_step, g.args from given g
    where g.left_step is not null and g.left_step <> g.cursor
    on conflict (job_id, key) do nothing
  ), entered as (
    -- Of a state that is entered time and again the last input is kept: so a machine may go round for ever.
    insert into stepwell.step as s (job_id, saved_at, n, epoch, kind, key, value)
    select g.id, _now, g.n, g.epoch, 'state', g.cursor, g.input::json from given g
    on conflict (job_id, key) do update
    set saved_at = excluded.saved_at, n = excluded.n, epoch = excluded.epoch, value = excluded.value
  ), moved as (
    update stepwell.job j
    set cursor = g.cursor, input = g.input::json, durable = true,
      attempt = case when g.delay is null and g.queue is null then 1 else 0 end,
      worker_id = case when g.delay is null and g.queue is null then j.worker_id end,
      state = case
        when g.delay > 0 then 'waiting'::stepwell.state
        when g.delay is null and g.queue is null then j.state
        else 'ready'::stepwell.state
      end,
      run_at = case
        when g.delay is null and g.queue is null then j.run_at
        else _now + coalesce(g.delay, 0) * interval '1 second'
      end,
      queue = coalesce(g.queue, j.queue), progress = null, awaits = null
    from given g
    where j.id = any (_ids) and j.id = g.id
    returning j.id, j.queue, j.state, j.run_at, j.cancelling and j.worker_id is null as cancelling
  )
  select array_agg(m.id), array_agg(m.id) filter (where m.cancelling),
    array_agg(distinct m.queue) filter (where m.state = 'ready'),
    extract(epoch from min(m.run_at) filter (where m.state = 'waiting') - _now)
  into _accepted, _cancelling, _ready, _due_in
  from moved m;
  perform stepwell.notify_ready(_ready, _due_in);
  if _cancelling is not null then
    perform stepwell.cancel(_cancelling);
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (coalesce(_accepted, '{}')));
end
$$;
-- The part of stepwell.finish for jobs that were cancelled while they ran: lock them with all that descends from them, and
-- begin to undo those that have steps to be undone. Returns the ids of these.
create or replace function stepwell.begin_cancelled_undo(
  _ids uuid[],
  _epochs integer[],
  _states stepwell.state[],
  _errors text[],
  _parent_ids uuid[]
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _cancelled uuid[];
  _reasons text[];
begin
  perform stepwell.lock_family(_ids, _parent_ids, true);
  select array_agg(j.id), array_agg(u.error) into _cancelled, _reasons
  from unnest(_ids, _epochs, _states, _errors) as u (id, epoch, state, error)
  join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
  where j.id = any (_ids) and coalesce(u.state, _states[1]) = 'cancelled';
  return stepwell.begin_undo(_cancelled, '{cancelled}', _reasons);
end
$$;
-- Instead of ending, let jobs be run once more to undo what they did, where they have steps to be undone. The jobs are
-- locked by the caller. _states, _errors and _failed_steps say how they end then. Returns the ids of those that do so.
create or replace function stepwell.begin_undo(
  _ids uuid[],
  _states text[],
  _errors text[],
  _failed_steps text[] default null
) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _begun uuid[];
  _queues text[];
begin
  with begun as (
    update stepwell.job j
    set state = 'ready', run_at = _now, worker_id = null, attempt = 0, cancelling = false, awaits = null,
      undoing = json_build_object(
        'state', coalesce(u.state, _states[1]), 'error', coalesce(u.error, j.reason), 'failed_step', u.failed_step
      )
    from unnest(_ids, _states, _errors, _failed_steps) as u (id, state, error, failed_step)
    where j.id = any (_ids) and j.id = u.id and j.durable and j.undoing is null
      and exists (
        select from stepwell.step s where s.job_id = j.id and s.undo and s.error is null and not s.pending
      )
    returning j.id, j.queue
  )
  select coalesce(array_agg(b.id), '{}'), array_agg(distinct b.queue) into _begun, _queues from begun b;
  perform stepwell.notify_ready(_queues, null);
  return _begun;
end
$$;
-- Take away the steps of jobs that ended, _gone, which their history tells of, and what was sent to them and not read.
-- Two things stay as long as the history of those that are kept: large values, and, of those that can be tried again, what
-- was sent.
create or replace function stepwell.bury_steps(
  _gone uuid[],
  _kept uuid[],
  _expires_ats timestamptz[],
  _retriable uuid[]
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _large uuid[];
begin
  with gone as (
    delete from stepwell.step s where s.job_id = any (_gone) returning s.job_id, s.large
  )
  select array_agg(distinct g.job_id) filter (where g.large) into _large from gone g;
  update stepwell.event e set expires_at = k.expires_at
  from unnest(_kept, _expires_ats) as k (id, expires_at)
  where k.id = any (_retriable) and e.job_id = k.id;
  delete from stepwell.event e
  where e.job_id = any (_gone)
    and (e.job_id <> all (coalesce(_retriable, '{}')) or e.job_id <> all (coalesce(_kept, '{}')));
  if _large is not null then
    update stepwell.large_value v set expires_at = k.expires_at
    from unnest(_kept, _expires_ats) as k (id, expires_at)
    where v.job_id = any (_large) and v.job_id = k.id;
    delete from stepwell.large_value v where v.job_id = any (_large) and v.job_id <> all (coalesce(_kept, '{}'));
  end if;
end
$$;
-- Cancel live jobs, and all that descends from them. One that waits ends at once, or is run once more to undo its steps; of
-- one that runs the worker is told, and the job ends when its handler does. Returns a row for each of _ids that was found
-- and is not being undone already, with its state: cancelled; running for those that were asked; ready for those that will be
-- undone.
create or replace function stepwell.cancel(
  _ids uuid[],
  _reason text default null,
  _keep double precision default null
) returns table (id uuid, state stepwell.state)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _all uuid[];
  _undoing uuid[];
  _cancelled uuid[];
  _running uuid[];
  _workers uuid[];
  _schedule_ids uuid[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _ends json;
begin
  _all := stepwell.lock_family(
    _ids, array(select j.parent_id from stepwell.job j where j.id = any (_ids) and j.parent_id is not null), true
  );

  with asked as (
    update stepwell.job j
    set cancelling = true, reason = coalesce(_reason, j.reason)
    -- worker_id stands for "running" here: the state itself would tempt the planner to the index on running jobs.
    -- What is being undone has failed or been cancelled already.
    where j.id = any (_all) and j.worker_id is not null and j.undoing is null
    returning j.id, j.worker_id
  )
  select array_agg(a.id), array_agg(distinct a.worker_id) into _running, _workers from asked a;
  perform pg_notify('stepwell_cancel', w.id::text) from unnest(_workers) as w (id);

  _undoing := stepwell.begin_undo(
    array(select j.id from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable),
    '{cancelled}',
    array(select _reason from stepwell.job j where j.id = any (_all) and j.worker_id is null and j.durable)
  );

  with gone as (
    delete from stepwell.job j
    where j.id = any (_all) and j.worker_id is null and j.undoing is null
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.epoch, j.attempt, j.max_attempts, j.rank, j.task, j.queue,
      j.args, j.metadata, j.schedule_id, j.scheduled_for, j.reason, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from
  ), judged as materialized (
    select g.id, g.run_at, g.enqueued_at, g.claimed_at, g.epoch, g.attempt, g.max_attempts, g.rank, g.task, g.queue,
      g.args, g.metadata, g.schedule_id, g.scheduled_for, g.durable, g.cursor, g.input, g.parent_id, g.parent_key,
      g.forked_from, coalesce(_reason, g.reason) as error,
      -- As long as a worker that knows the task would keep a failure of it.
      coalesce(
        _keep,
        (
          select (w.tasks -> g.task ->> 'keep_failed')::double precision from stepwell.worker w
          where w.tasks ? g.task limit 1
        ),
        2592000
      ) as keep
    from gone g
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, epoch, attempt,
      max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error, cursor, input, parent_id,
      parent_key, forked_from, steps)
    select g.id, stepwell.expiry(_now, g.keep), _now, g.run_at, g.enqueued_at, g.claimed_at, g.epoch, g.attempt,
      g.max_attempts, g.rank, 'cancelled', g.task, g.queue, g.args, g.metadata, g.schedule_id, g.scheduled_for,
      g.error, g.cursor, g.input, g.parent_id, g.parent_key, g.forked_from,
      case when g.durable then stepwell.timeline(g.id) end
    from judged g
    where g.keep > 0
  )
  select array_agg(g.id), array_agg(g.schedule_id) filter (where g.schedule_id is not null),
    array_agg(g.id) filter (where g.durable),
    array_agg(g.id) filter (where g.durable and g.keep > 0),
    array_agg(stepwell.expiry(_now, g.keep)) filter (where g.durable and g.keep > 0),
    json_agg(json_build_object('parent_id', g.parent_id, 'key', g.parent_key, 'child_id', g.id, 'state', 'cancelled',
      'message', g.error)) filter (where g.parent_id is not null)
  into _cancelled, _schedule_ids, _durable, _kept, _expires_ats, _ends
  from judged g;
  if _durable is not null then
    perform stepwell.bury_steps(_durable, _kept, _expires_ats, _durable);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;

  perform stepwell.notify_done(_cancelled);
  return query
    select c.id, 'cancelled'::stepwell.state from unnest(_cancelled) as c (id) where c.id = any (_ids)
    union all
    select r.id, 'running'::stepwell.state from unnest(_running) as r (id) where r.id = any (_ids)
    union all
    select u.id, 'ready'::stepwell.state from unnest(_undoing) as u (id) where u.id = any (_ids);
end
$$;
-- Cancel the live children of jobs that failed or were cancelled: nobody is there to hear of them.
create or replace function stepwell.cancel_children(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  -- In the order of the index, as in stepwell.lock_family.
  _children uuid[] := array(select j.id from stepwell.job j where j.parent_id = any (_ids) order by j.parent_id);
begin
  if cardinality(_children) > 0 then
    perform stepwell.cancel(_children, 'the job that spawned it did not succeed');
  end if;
end
$$;
-- Refuse what no job may have, before anything is written. Python says the same earlier and with more
-- context; this is for plain SQL and for other languages.
-- All of it is one expression, planned once. enqueue_many lets one plain job pass by the same rules without it: a rule that
-- is changed here is changed there, too.
create or replace function stepwell.check_options(
  _now timestamptz,
  _tasks text[],
  _args text[],
  _queues text[],
  _priorities integer[],
  _delays double precision[],
  _run_ats timestamptz[],
  _metadata text[],
  _max_attempts integer[]
) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
set plan_cache_mode = force_generic_plan
as $$
declare
  _count integer := coalesce(cardinality(_args), 0);
  _wrong text := case
    when _count > 0 and cardinality(_tasks) is distinct from 1 and cardinality(_tasks) is distinct from _count then
      format('%s tasks for %s args: give one task, or one for each', coalesce(cardinality(_tasks), 0), _count)
    when exists (
      select from unnest(array[
        cardinality(_queues), cardinality(_priorities), cardinality(_delays), cardinality(_run_ats),
        cardinality(_metadata), cardinality(_max_attempts)
      ]) n where n not in (1, _count)
    ) then
      format('an option has neither one element nor %s, one for each item', _count)
    when exists (select from unnest(_tasks) t where t is null or t = '' or length(t) > 200) then
      'a task''s name must have 1 to 200 characters'
    when exists (select from unnest(_queues) q where q = '' or length(q) > 200) then
      'a queue''s name must have 1 to 200 characters'
    when exists (select from unnest(_priorities) p where p not between -32767 and 32767) then
      'priority must be between -32767 and 32767'
    when exists (select from unnest(_delays) d where not d between 0 and 3155760000) then
      'delay must be between 0 and 100 years'
    when exists (
      select from unnest(_run_ats) r where not r between '1970-01-01 00:00:00+00' and _now + interval '100 years'
    ) then
      'run_at must be between 1970 and 100 years from now'
    when exists (
      select from unnest(_delays, _run_ats) as u (delay, run_at)
      where (u.delay is not null or (cardinality(_delays) = 1 and _delays[1] is not null))
        and (u.run_at is not null or (cardinality(_run_ats) = 1 and _run_ats[1] is not null))
    ) then
      'delay and run_at exclude each other: give one'
    when exists (select from unnest(_metadata) m where left(ltrim(m, E' \t\r\n'), 1) <> '{') then
      'metadata must be a JSON object'
    when exists (select from unnest(_max_attempts) m where m not between 1 and 1000000) then
      'max_attempts must be between 1 and 1000000'
    -- Every job passes this one: one walk, the quick looks first.
    when exists (
      select from unnest(_args) a
      where a is null or (not starts_with(a, '{') and left(ltrim(a, E' \t\r\n'), 1) <> '{') or strpos(a, '\u0000') > 0
    ) then case
      when exists (select from unnest(_args) a where a is null or left(ltrim(a, E' \t\r\n'), 1) <> '{') then
        'args must be a JSON object of arguments by name, such as {"n": 1}'
      when exists (select from unnest(_args) a where a ~ '(^|[^\\])(\\\\)*\\u0000') then
        'args hold a NUL character (\u0000), which Postgres cannot keep in text'
    end
  end;
begin
  if _wrong is not null then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: ' || _wrong;
  end if;
end
$$;
-- Refuse a value that could not be read again: JSON in which Postgres finds text or numbers that it cannot keep.
create or replace function stepwell.check_value(_value json) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if _value is null then
    return;
  end if;
  perform _value::jsonb;
exception when data_exception or statement_too_complex then
  raise exception using errcode = 'invalid_parameter_value',
    message = format('stepwell: the value cannot be kept by Postgres: %s', sqlerrm),
    detail = 'A NUL character (\u0000), half of a surrogate pair, a number out of all bounds, or too deep.';
end
$$;
-- Take up to _limit ready jobs of these queues and tasks for a worker whose lease is alive.
-- The k-th position (_ranks[k], _run_ats[k], _ids[k]) says after which job of _queues[k] to look; nulls: from
-- the front. Each queue may give its share first; what is left goes to those that had more. The k-th queue's share of what
-- is still wanted is _shares[k] out of the shares from it on, rounded up; nulls: equal shares; nothing but zeros: all of it.
-- The worker's row is locked against rescue, so a job is never claimed for a worker just declared dead.
create or replace function stepwell.claim(
  _worker_id uuid,
  _queues text[],
  _ranks integer[],
  _run_ats timestamptz[],
  _ids uuid[],
  _tasks text[],
  _limit integer,
  _shares double precision[] default null
) returns table (
  id uuid,
  queue text,
  task text,
  args json,
  metadata jsonb,
  epoch integer,
  attempt integer,
  rank smallint,
  run_at timestamptz,
  scheduled_for timestamptz,
  parent_id uuid,
  journal text
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- The plan must not follow the statistics, which are always stale on a table like this.
set plan_cache_mode = force_generic_plan
-- Before Postgres 18 a way that is forbidden counts as very dear, and dear plans are compiled, anew at each call.
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  _now timestamptz := stepwell.now();
  _paused boolean;
  _paused_queues text[];
  _paused_tasks text[];
  _open integer[];
  _full integer[];
  _left integer := _limit;
  _share integer;
  _got integer;
  _k integer;
  _ahead double precision;
  _rank integer;
  _run_at timestamptz;
  _id uuid;
begin
  perform from stepwell.worker w where w.id = _worker_id and w.lease_until > _now for key share;
  if not found then
    raise exception using errcode = 'SW001', message = format('stepwell: worker %s has no lease', _worker_id);
  end if;

  select bool_or(c.scope = 'everything' or (c.scope = 'worker' and c.name = _worker_id::text)),
    array_agg(c.name) filter (where c.scope = 'queue'), array_agg(c.name) filter (where c.scope = 'task')
  into _paused, _paused_queues, _paused_tasks
  from stepwell.control c where c.action = 'pause';
  if _paused then
    return;
  end if;
  if _paused_tasks is not null then
    _tasks := array(select t.name from unnest(_tasks) as t (name) where t.name <> all (_paused_tasks));
    -- Else every ready job would be walked over.
    if cardinality(_tasks) = 0 then
      return;
    end if;
  end if;
  select array_agg(k.k order by k.k) into _open
  from generate_subscripts(_queues, 1) as k (k)
  where _paused_queues is null or _queues[k.k] <> all (_paused_queues);

  while _left > 0 and cardinality(_open) > 0 loop
    _full := '{}';
    _ahead := cardinality(_open);
    if _shares is not null then
      select sum(coalesce(_shares[o.k], 1)) into _ahead from unnest(_open) as o (k);
    end if;
    foreach _k in array _open loop
      exit when _left <= 0;
      _share := case when _ahead > 0 then least(_left, ceil(_left * coalesce(_shares[_k], 1) / _ahead)) else _left end;
      _ahead := _ahead - coalesce(_shares[_k], 1);
      if _share <= 0 then
        -- Not its turn before the others have given what they have.
        _full := _full || _k;
        continue;
      end if;
      _rank := coalesce(_ranks[_k], -32768);
      _run_at := coalesce(_run_ats[_k], '-infinity');
      _id := coalesce(_ids[_k], '00000000-0000-0000-0000-000000000000');
      return query
        with picked as materialized (
          select j.ctid
          from stepwell.job j
          where j.state = 'ready' and j.queue = _queues[_k] and j.task = any (_tasks)
            and (j.rank, j.run_at, j.id) > (_rank, _run_at, _id)
          order by j.rank, j.run_at, j.id
          limit _share
          for no key update skip locked
        )
        update stepwell.job j
        set state = 'running', worker_id = _worker_id, epoch = j.epoch + 1, attempt = j.attempt + 1, claimed_at = _now
        where j.ctid = any (array(select p.ctid from picked p))
        returning j.id, j.queue, j.task, j.args, j.metadata, j.epoch, j.attempt, j.rank, j.run_at,
          j.scheduled_for, j.parent_id, case when j.durable then stepwell.journal(j.id, j.cursor, j.input, j.undoing) end;
      get diagnostics _got = row_count;
      _left := _left - _got;
      if _got = _share then
        _full := _full || _k;
      end if;
    end loop;
    _open := _full;
  end loop;
end
$$;
-- What a control is for: its scope and name, out of exactly one of these.
create or replace function stepwell.control_scope(
  _queue text,
  _task text,
  _worker uuid,
  _everything boolean,
  out scope text,
  out name text
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if num_nonnulls(_queue, _task, _worker, nullif(_everything, false)) <> 1 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: give a queue, a task, a worker or everything: one of them';
  end if;
  if length(_queue) not between 1 and 200 or length(_task) not between 1 and 200 then
    raise exception using errcode = 'SW002', message = 'stepwell: a name must have 1 to 200 characters';
  end if;
  if right(_queue, 1) = '*' then
    raise exception using errcode = 'SW002',
      message = format('stepwell: %s is a pattern: name each queue, or say everything', _queue);
  end if;
  if _worker is not null and not exists (select from stepwell.worker w where w.id = _worker) then
    raise exception using errcode = 'SW003', message = format('stepwell: no worker %s is registered: see "stepwell workers"', _worker);
  end if;
  scope := case
    when _queue is not null then 'queue' when _task is not null then 'task' when _worker is not null then 'worker'
    else 'everything'
  end;
  name := coalesce(_queue, _task, _worker::text, '');
end
$$;
-- When a transaction that has emitted events commits: give them to those who wait. Who is about to wait holds the
-- advisory lock of the event's name until it has looked for what is there and is seen to wait; so one of both sees the other.
create or replace function stepwell.deliver_events() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _sent_to uuid[];
  _ended uuid[];
  _waiting uuid[];
begin
  -- The first of a transaction's events brings all of them, so that jobs are locked in one order.
  if new.id <= coalesce(nullif(current_setting('stepwell.delivered', true), ''), '0')::bigint then
    return null;
  end if;
  perform set_config('stepwell.delivered', max(e.id)::text, true)
  from stepwell.event e where e.transaction = new.transaction and e.id >= new.id;
  perform pg_advisory_xact_lock_shared(1937007984, l.name)
  from (
    select distinct hashtext(e.name || chr(1) || coalesce(e.job_id::text, e.key)) as name
    from stepwell.event e
    where e.id >= new.id and e.transaction = new.transaction
    order by 1
  ) l;
  _waiting := array(
    select distinct s.job_id
    from stepwell.event e
    join stepwell.step s on s.pending and s.awaited is not null and s.event = e.name and s.event_key = e.key
      and (e.job_id is null and s.kind = 'wait' or s.job_id = e.job_id and s.kind = 'receive')
    where e.id >= new.id and e.transaction = new.transaction
  );
  _sent_to := array(
    select distinct e.job_id from stepwell.event e
    where e.id >= new.id and e.transaction = new.transaction and e.job_id is not null
  );
  perform from stepwell.job j where j.id = any (_waiting) order by j.id for no key update;
  if cardinality(_sent_to) > 0 then
    -- So that it does not end now. No more than that, for two that run may send to each other, and hold themselves.
    perform from stepwell.job j where j.id = any (_sent_to) order by j.id for key share;
    -- Durable, so that its end sees to what is left unread. One that is locked is saving a step, and is durable by that.
    update stepwell.job j set durable = true
    where j.id = any (array(
      select k.id from stepwell.job k
      where k.id = any (_sent_to) and not k.durable
      order by k.id
      for no key update skip locked
    ));
    _ended := array(
      select t.id from unnest(_sent_to) as t (id) where not exists (select from stepwell.job j where j.id = t.id)
    );
  end if;
  if cardinality(_ended) > 0 then
    -- As stepwell.bury_steps would have done: what can be tried again may read it then.
    update stepwell.event e set expires_at = h.expires_at
    from stepwell.history h
    where e.job_id = any (_ended) and e.transaction = new.transaction and h.id = e.job_id and h.state <> 'succeeded';
    delete from stepwell.event e
    where e.job_id = any (_ended) and e.transaction = new.transaction
      and not exists (select from stepwell.history h where h.id = e.job_id and h.state <> 'succeeded');
  end if;
  if cardinality(_waiting) > 0 then
    perform stepwell.take_events(_waiting, true);
    perform stepwell.wake(_waiting);
  end if;
  return null;
end
$$;
-- The schedules that are due first, with all that is needed to reckon their ticks; due_in is in seconds, zero or less for
-- what is due now. _except: those that the caller could not reckon.
create or replace function stepwell.due_schedules(_except uuid[] default '{}', _limit integer default 100) returns table (
  id uuid,
  name text,
  version integer,
  cron text,
  tz text,
  every double precision,
  catchup integer,
  due_at timestamptz,
  due_in double precision,
  looked_at timestamptz
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  _now timestamptz := stepwell.now();
begin
  return query
    select s.id, s.name, s.version, s.cron, s.tz, s.every, s.catchup, s.next_tick_at,
      extract(epoch from s.next_tick_at - _now)::double precision, _now
    from stepwell.schedule s
    where s.next_tick_at is not null and s.id <> all (_except)
    order by s.next_tick_at
    limit _limit;
end
$$;
-- Emit an event, from any language: select stepwell.emit('shipped', '7', '{"by": "mule"}'). Every job that waits for it
-- goes on when this is committed; who begins to wait later finds it, for as long as it is kept. Returns its id.
create or replace function stepwell.emit(
  name text,
  key text default null,
  value json default null,
  keep interval default '30 days'
) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _id bigint;
begin
  -- At commit the waits of others are looked for, and a snapshot of the whole transaction would not show all of them.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = 'stepwell: emit and send need a transaction at read committed: use another connection, or another job';
  end if;
  if name is null or length(name) not between 1 and 200 or length(key) > 200 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: an event''s name must have 1 to 200 characters, its key at most 200';
  end if;
  if keep is null or keep < interval '0' then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: keep must be 0 or more';
  end if;
  perform stepwell.check_value(value);
  insert into stepwell.event (emitted_at, expires_at, name, key, value)
  values (_now, _now + keep, emit.name, coalesce(emit.key, ''), emit.value)
  returning id into _id;
  return _id;
end
$$;
-- Tell the parents of jobs that ended how they did: the step that spawned each gets its result or its error, and a parent
-- that waits for it may go on. _ends has for each child {"parent_id", "key", "child_id", "state", "result" as text, "type",
-- "message"}. The parents are locked here if the caller has not done so; those that are gone are not told.
create or replace function stepwell.end_children(_ends json) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off: many children of one parent are joined by a hash.
set enable_nestloop = on
set enable_hashjoin = on
as $$
declare
  _now timestamptz := stepwell.now();
  _parent_ids uuid[] := array(select distinct (e.value ->> 'parent_id')::uuid from json_array_elements(_ends) as e);
begin
  perform from stepwell.job j where j.id = any (_parent_ids) order by j.id for no key update;
  with ended as materialized (
    select e.parent_id, e.key, e.child_id, e.state, e.result, e.type, e.message,
      coalesce(octet_length(e.result) > 65536, false) as large
    from json_to_recordset(_ends) as e (
      parent_id uuid, key text, child_id uuid, state text, result text, type text, message text
    )
  ), told as (
    update stepwell.step s
    set pending = false, saved_at = _now, large = e.large,
      value = case when not e.large then e.result::json end,
      error = case when e.state <> 'succeeded' then
        json_build_object('type', e.type, 'message', e.message, 'state', e.state)
      end
    from ended e
    where s.job_id = any (_parent_ids) and s.job_id = e.parent_id and s.key = e.key and s.child_id = e.child_id and s.pending
    returning s.job_id, s.key, s.large, e.result
  )
  insert into stepwell.large_value (job_id, expires_at, key, value)
  select t.job_id, 'infinity', t.key, t.result::json from told t where t.large
  on conflict (job_id, key) do update set value = excluded.value;
  perform stepwell.wake(_parent_ids);
end
$$;
-- End the sleeps whose time has come, and give up the waits. The jobs are locked by the caller.
create or replace function stepwell.end_waits(_job_ids uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
  update stepwell.step s
  set pending = false, timed_out = s.event is not null
  where s.job_id = any (_job_ids) and s.pending and s.until <= stepwell.now()
$$;
-- Put one job in, from any language: select stepwell.enqueue('ship', '{"order_id": 7}', delay => '1 hour').
create or replace function stepwell.enqueue(
  task text,
  args json default '{}',
  queue text default 'default',
  priority integer default 0,
  delay interval default null,
  run_at timestamptz default null,
  metadata jsonb default null,
  max_attempts integer default null
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (stepwell.enqueue_many(
    array[task], array[args::text], array[queue], array[priority], array[extract(epoch from delay)::double precision],
    array[run_at], array[metadata::text], array[max_attempts]
  ))[1];
end
$$;
-- Put jobs in; returns their ids in the order of the items. Ids grow along the batch, so jobs of one batch
-- that are equal in rank and time run in the order given.
-- An option is null (the default for all), one element (the same for all) or one element per item.
create or replace function stepwell.enqueue_many(
  _tasks text[],
  _args text[],
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Else it is planned anew for each batch, for the length of its arrays.
set plan_cache_mode = force_generic_plan
as $$
declare
  _now timestamptz := stepwell.now();
  _count integer := coalesce(cardinality(_args), 0);
  _task text := case when cardinality(_tasks) = 1 then _tasks[1] end;
  _one_queue text := case when cardinality(_queues) = 1 then _queues[1] end;
  _priority integer := case when cardinality(_priorities) = 1 then _priorities[1] end;
  _delay double precision := case when cardinality(_delays) = 1 then _delays[1] end;
  _run_at timestamptz := case when cardinality(_run_ats) = 1 then _run_ats[1] end;
  _one_metadata text := case when cardinality(_metadata) = 1 then _metadata[1] end;
  _max integer := case when cardinality(_max_attempts) = 1 then _max_attempts[1] end;
  _ids uuid[];
  _ready text[];
  _due_in double precision;
begin
  -- What most calls bring, one plain job, is seen to be good at a glance, by some of the rules of check_options.
  if (_count = 1 and length(_task) between 1 and 200 and starts_with(_args[1], '{') and strpos(_args[1], E'\\u0000') = 0
    and (_queues is null or length(_one_queue) between 1 and 200)
    and (_priorities is null or _priority between -32767 and 32767)
    and _delays is null and _run_ats is null and _metadata is null and _max_attempts is null) is not true
  then
    perform stepwell.check_options(
      _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts
    );
  end if;
  if _count = 0 then
    return '{}';
  end if;

  _ids := case when _count = 1 then array[stepwell.uuid7()] else stepwell.uuids7(_count) end;
  if _delays is null and _run_ats is null then
    _ready := case
      when _queues is null then '{default}'
      when _one_queue is not null then array[_one_queue]
      else array(select distinct coalesce(q, 'default') from unnest(_queues) as q)
    end;
  else
    _run_ats := array(
      select coalesce(_now + coalesce(u.delay, _delay) * interval '1 second', u.run_at, _run_at, _now)
      from unnest(_ids, _delays, _run_ats) with ordinality as u (id, delay, run_at, n)
      order by u.n
    );
    select array_agg(distinct coalesce(u.queue, _one_queue, 'default')) filter (where u.run_at <= _now),
      extract(epoch from min(u.run_at) filter (where u.run_at > _now) - _now)
    into _ready, _due_in
    from unnest(_run_ats, _queues) as u (run_at, queue);
  end if;

  insert into stepwell.job (id, run_at, enqueued_at, max_attempts, rank, state, task, queue, args, metadata)
  select u.id, coalesce(u.run_at, _now), _now, coalesce(u.max_attempts, _max), -coalesce(u.priority, _priority, 0),
    case when u.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
    coalesce(u.task, _task), coalesce(u.queue, _one_queue, 'default'), u.args::json,
    coalesce(u.metadata, _one_metadata)::jsonb
  from unnest(_ids, _tasks, _queues, _priorities, _run_ats, _args, _metadata, _max_attempts)
    as u (id, task, queue, priority, run_at, args, metadata, max_attempts);
  perform stepwell.notify_ready(_ready, _due_in);
  return _ids;
end
$$;
-- When something kept for so many seconds expires; infinity stays infinity.
create or replace function stepwell.expiry(_now timestamptz, _keep double precision) returns timestamptz
language sql immutable parallel safe
as $$
  select case when _keep < 3155760000 then _now + _keep * interval '1 second' else 'infinity' end
$$;
-- End attempts that did not succeed: each leaves a row in stepwell.failure, and its job is tried again or fails for
-- good. The database decides which: _delays[k] is the pause before the next try, null if there must be none; the
-- limit is the job's own, else _max_attempts[k]. One that fails for good and has steps to be undone is run once more for
-- that, and ends then. _failed_steps[k] is the step it failed at, _besides[k] a JSON array of those that failed beside it:
-- they are taken anew with it, by the next attempt or by a retry. _parent_ids are the jobs that spawned some of
-- them. Returns the ids that were refused by the fence.
create or replace function stepwell.fail(
  _ids uuid[],
  _epochs integer[],
  _reasons text[],
  _types text[],
  _messages text[],
  _tracebacks text[],
  _delays double precision[],
  _max_attempts integer[],
  _keeps double precision[],
  _failed_steps text[] default null,
  _parent_ids uuid[] default null,
  _besides text[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- As in stepwell.finish.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _final uuid[];
  _schedule_ids uuid[];
  _queues text[];
  _due_in double precision;
  _undo_ids uuid[];
  _undo_states text[];
  _undo_errors text[];
  _undo_steps text[];
  _undo_types text[];
  _undo_messages text[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _ends json;
begin
  perform stepwell.lock_family(_ids, _parent_ids, true);
  if _besides is not null then
    perform stepwell.mark_beside(_ids, _epochs, _besides);
  end if;
  with outcome as materialized (
    select distinct on (u.id, u.epoch) u.id, u.epoch, u.reason, u.type, u.message, u.traceback, u.delay,
      u.max_attempts, u.keep, u.failed_step
    from unnest(_ids, _epochs, _reasons, _types, _messages, _tracebacks, _delays, _max_attempts, _keeps, _failed_steps)
      as u (id, epoch, reason, type, message, traceback, delay, max_attempts, keep, failed_step)
    order by u.id, u.epoch
  ), held as materialized (
    select o.id, o.reason, o.type, o.message, o.traceback, o.delay, o.keep, j.epoch, j.attempt, j.claimed_at,
      j.worker_id, j.durable, j.undoing,
      case when j.cancelling then 'cancelled' else 'failed' end as state,
      case when j.cancelling then j.reason else left(o.type || ': ' || o.message, 1000) end as error,
      case when not j.cancelling then o.failed_step end as failed_step,
      -- To undo there are twenty tries at least, however few there were to do.
      o.delay is not null and not j.cancelling
        and j.attempt < greatest(coalesce(j.max_attempts, o.max_attempts), case when j.undoing is not null then 20 end) as again
    from outcome o
    join stepwell.job j on j.id = o.id and j.epoch = o.epoch
    where j.id = any (_ids) and j.worker_id is not null
    for no key update of j
  ), judged as materialized (
    select h.id, h.reason, h.type, h.message, h.traceback, h.delay, h.keep, h.epoch, h.attempt, h.claimed_at,
      h.worker_id, h.durable, h.undoing, h.state, h.error, h.failed_step, h.again,
      not h.again and h.durable and h.undoing is null and exists (
        select from stepwell.step s where s.job_id = h.id and s.undo and s.error is null and not s.pending
      ) as undo
    from held h
  ), recorded as (
    insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type,
      message, traceback)
    select h.id, stepwell.expiry(_now, h.keep), _now, h.claimed_at, h.worker_id, h.epoch, h.attempt, h.reason, h.type,
      h.message, h.traceback
    from judged h
    where h.keep > 0
  ), retried as (
    update stepwell.job j
    set state = case when h.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = _now + h.delay * interval '1 second', worker_id = null, progress = null
    from judged h
    where h.again and j.id = any (_ids) and j.id = h.id
    returning j.queue, j.state, j.run_at
  ), ended as (
    delete from stepwell.job j
    using judged h
    where not h.again and not h.undo and j.id = any (_ids) and j.id = h.id
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, j.attempt, j.max_attempts, j.rank,
      j.task, j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from, h.keep,
      -- What it failed with, which is not what undoing it did; rows from before these were kept have the line of both.
      case when h.undoing is null then h.type else h.undoing ->> 'type' end as type,
      case when h.undoing is null then h.message else coalesce(h.undoing ->> 'message', h.undoing ->> 'error') end as message,
      coalesce((h.undoing ->> 'state')::stepwell.state, h.state::stepwell.state) as state,
      case when h.undoing is null then h.failed_step else h.undoing ->> 'failed_step' end as failed_step,
      case
        when h.undoing is null then h.error
        else left(concat_ws('; ', h.undoing ->> 'error', 'and undoing it failed: ' || h.error), 1000)
      end as error
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, error, cursor, input,
      parent_id, parent_key, forked_from, failed_step, steps)
    select e.id, stepwell.expiry(_now, e.keep), _now, e.run_at, e.enqueued_at, e.claimed_at, e.worker_id, e.epoch,
      e.attempt, e.max_attempts, e.rank, e.state, e.task, e.queue, e.args, e.metadata, e.schedule_id, e.scheduled_for,
      e.error, e.cursor, e.input, e.parent_id, e.parent_key, e.forked_from, e.failed_step,
      case when e.durable then stepwell.timeline(e.id) end
    from ended e
    where e.keep > 0
  )
  select array(select h.id from held h), array(select e.id from ended e),
    array(select e.schedule_id from ended e where e.schedule_id is not null),
    array(select distinct r.queue from retried r where r.state = 'ready'),
    (select extract(epoch from min(r.run_at) - _now) from retried r where r.state = 'scheduled'),
    array(select h.id from judged h where h.undo order by h.id),
    array(select h.state from judged h where h.undo order by h.id),
    array(select h.error from judged h where h.undo order by h.id),
    array(select h.failed_step from judged h where h.undo order by h.id),
    array(select h.type from judged h where h.undo order by h.id),
    array(select h.message from judged h where h.undo order by h.id),
    array(select e.id from ended e where e.durable),
    array(select e.id from ended e where e.durable and e.keep > 0 order by e.id),
    array(select stepwell.expiry(_now, e.keep) from ended e where e.durable and e.keep > 0 order by e.id),
    (
      select json_agg(json_build_object('parent_id', e.parent_id, 'key', e.parent_key, 'child_id', e.id, 'state',
        e.state, 'type', e.type, 'message', case when e.state = 'failed' then e.message else e.error end))
      from ended e where e.parent_id is not null
    )
  into _accepted, _final, _schedule_ids, _queues, _due_in, _undo_ids, _undo_states, _undo_errors, _undo_steps,
    _undo_types, _undo_messages, _durable, _kept, _expires_ats, _ends;
  if _failed_steps is not null then
    -- Those of jobs that are tried again, so that the step is, too; of the others nothing is left here.
    delete from stepwell.step s
    using unnest(_ids, _failed_steps) as u (id, failed_step)
    where s.job_id = any (_accepted) and s.job_id = u.id and s.error is not null
      and s.job_id <> all (_undo_ids)
      and (
        s.key = u.failed_step or s.kind = 'retry' and starts_with(s.key, u.failed_step || '~')
        or (s.error ->> 'anew')::boolean
      );
  end if;
  if cardinality(_undo_ids) > 0 then
    perform stepwell.begin_undo(_undo_ids, _undo_states, _undo_errors, _undo_steps);
    -- For the parent, which is told when that is done.
    update stepwell.job j
    set undoing = (j.undoing::jsonb || jsonb_build_object('type', u.type, 'message', u.message))::json
    from unnest(_undo_ids, _undo_states, _undo_types, _undo_messages) as u (id, state, type, message)
    where j.id = any (_undo_ids) and j.id = u.id and u.state = 'failed' and j.parent_id is not null;
  end if;
  if cardinality(_durable) > 0 then
    perform stepwell.bury_steps(_durable, _kept, _expires_ats, _durable);
  end if;
  if cardinality(_durable || _undo_ids) > 0 then
    perform stepwell.cancel_children(_durable || _undo_ids);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if cardinality(_schedule_ids) > 0 then
    perform stepwell.admit(_schedule_ids);
  end if;
  perform stepwell.notify_ready(_queues, _due_in);
  perform stepwell.notify_done(_final);
  if cardinality(_accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (_accepted));
end
$$;
-- Fail, as lease_lost, every job that a worker holds and that nobody has locked; each may run again at once. Returns
-- their ids. One whose parent or children somebody has locked for longer than a moment is left for the next look.
create or replace function stepwell.fail_held(_worker_id uuid, _message text, _tasks jsonb) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
set jit = off
set enable_seqscan = off
as $$
declare
  _ids uuid[];
  _epochs integer[];
  _max_attempts integer[];
  _keeps double precision[];
  _count integer;
  _done uuid[] := '{}';
  _k integer;
begin
  with held as materialized (
    select j.id, j.epoch, j.task
    from stepwell.job j
    where j.worker_id = _worker_id and j.state = 'running'
    for no key update skip locked
  )
  select array_agg(h.id), array_agg(h.epoch),
    array_agg(coalesce((_tasks -> h.task ->> 'max_attempts')::numeric::integer, 20)),
    array_agg(coalesce((_tasks -> h.task ->> 'keep_failed')::double precision, 2592000))
  into _ids, _epochs, _max_attempts, _keeps
  from held h;
  _count := coalesce(cardinality(_ids), 0);
  if _count = 0 then
    return '{}';
  end if;
  begin
    perform stepwell.fail(
      _ids, _epochs,
      array_fill('lease_lost'::text, array[_count]), array_fill('LeaseLost'::text, array[_count]),
      array_fill(_message, array[_count]), array_fill(null::text, array[_count]),
      array_fill(0::double precision, array[_count]), _max_attempts, _keeps
    );
    return _ids;
  exception when lock_not_available then
    null;
  end;
  for _k in 1 .. _count loop
    begin
      perform stepwell.fail(
        _ids[_k : _k], _epochs[_k : _k], '{lease_lost}', '{LeaseLost}', array[_message], '{null}', '{0}',
        _max_attempts[_k : _k], _keeps[_k : _k]
      );
      _done := _done || _ids[_k];
    exception when lock_not_available then
      continue;
    end;
  end loop;
  return _done;
end
$$;
-- End jobs that succeeded or were cancelled: out of stepwell.job, into stepwell.history, in one statement.
-- Returns the ids that were refused: the fence (id, epoch) found no running row, so somebody else has the job.
-- _keeps is in seconds: 0 keeps no row, infinity keeps it for ever. _parent_ids: the jobs that spawned some of them.
-- An option is null, one element (the same for all) or one element per job.
-- A job that was being undone ends as was said when that began.
create or replace function stepwell.finish(
  _ids uuid[],
  _epochs integer[],
  _results text[],
  _keeps double precision[],
  _states stepwell.state[] default '{succeeded}',
  _errors text[] default null,
  _parent_ids uuid[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- A plan made while the table was empty is kept when it is full. So the only way to the rows is job_pkey by _ids, in its
-- order, joined by a hash: it walks no other row and locks in id order. A hash that spilled would lose that order.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
declare
  _now timestamptz := stepwell.now();
  _keep double precision := case when cardinality(_keeps) = 1 then _keeps[1] end;
  _state stepwell.state := case when cardinality(_states) = 1 then _states[1] end;
  _undoing uuid[] := '{}';
  _accepted uuid[];
  _schedule_ids uuid[];
  _durable uuid[];
  _kept uuid[];
  _expires_ats timestamptz[];
  _unsuccessful uuid[];
  _ends json;
begin
  if 'cancelled' = any (_states) then
    _undoing := stepwell.begin_cancelled_undo(_ids, _epochs, _states, _errors, _parent_ids);
  elsif _parent_ids is not null then
    perform stepwell.lock_family(_ids, _parent_ids, false);
  end if;
  with outcome as (
    select u.id, u.epoch, u.result, coalesce(u.keep, _keep) as keep, coalesce(u.state, _state) as state, u.error
    from unnest(_ids, _epochs, _results, _keeps, _states, _errors) as u (id, epoch, result, keep, state, error)
    where u.id is not null
    order by u.id
  ), gone as (
    -- worker_id stands for "running" here: the state itself would tempt the planner to the index on running jobs.
    delete from stepwell.job j
    using outcome o
    where j.id = any (_ids) and j.id = o.id and j.epoch = o.epoch and j.worker_id is not null
    returning j.id, j.run_at, j.enqueued_at, j.claimed_at, j.worker_id, j.epoch, j.attempt, j.max_attempts, j.rank,
      j.task, j.queue, j.args, j.metadata, j.schedule_id, j.scheduled_for, j.durable, j.cursor, j.input, j.parent_id,
      j.parent_key, j.forked_from, o.keep,
      case when j.undoing is null then o.result end as result,
      coalesce((j.undoing ->> 'state')::stepwell.state, o.state) as state, j.undoing ->> 'failed_step' as failed_step,
      j.undoing ->> 'type' as type, j.undoing ->> 'message' as message,
      case
        when j.undoing is not null then j.undoing ->> 'error'
        when o.state = 'cancelled' then coalesce(o.error, j.reason)
      end as error
  ), kept as (
    insert into stepwell.history (id, expires_at, finished_at, run_at, enqueued_at, claimed_at, worker_id, epoch,
      attempt, max_attempts, rank, state, task, queue, args, metadata, schedule_id, scheduled_for, result, error, cursor,
      input, parent_id, parent_key, forked_from, failed_step, steps)
    select g.id, stepwell.expiry(_now, g.keep), _now, g.run_at, g.enqueued_at, g.claimed_at, g.worker_id, g.epoch,
      g.attempt, g.max_attempts, g.rank, g.state, g.task, g.queue, g.args, g.metadata, g.schedule_id, g.scheduled_for,
      g.result::json, g.error, g.cursor, g.input, g.parent_id, g.parent_key, g.forked_from, g.failed_step,
      case when g.durable then (
        select json_agg(f.folded order by f.n) from stepwell.folded_steps f where f.job_id = g.id
      ) end
    from gone g
    where g.keep > 0
  )
  select array_agg(g.id), array_agg(g.schedule_id) filter (where g.schedule_id is not null),
    array_agg(g.id) filter (where g.durable),
    array_agg(g.id) filter (where g.durable and g.keep > 0),
    array_agg(stepwell.expiry(_now, g.keep)) filter (where g.durable and g.keep > 0),
    array_agg(g.id) filter (where g.durable and g.state <> 'succeeded'),
    json_agg(json_build_object('parent_id', g.parent_id, 'key', g.parent_key, 'child_id', g.id, 'state', g.state,
      'result', g.result, 'type', g.type, 'message', coalesce(g.message, g.error))) filter (where g.parent_id is not null)
  into _accepted, _schedule_ids, _durable, _kept, _expires_ats, _unsuccessful, _ends
  from gone g;
  if _durable is not null then
    perform stepwell.bury_steps(_durable, _kept, _expires_ats, _unsuccessful);
  end if;
  if _unsuccessful is not null or cardinality(_undoing) > 0 then
    perform stepwell.cancel_children(coalesce(_unsuccessful, '{}') || _undoing);
  end if;
  if _ends is not null then
    perform stepwell.end_children(_ends);
  end if;
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;
  perform stepwell.notify_done(_accepted);
  if cardinality(_accepted) = cardinality(_ids) then
    return '{}';
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (coalesce(_accepted, '{}') || _undoing));
end
$$;
-- Forget waits of a running job that nobody in it waits for any more, before they take what comes for others. What was sent to
-- the job, and one of them has taken meanwhile, is given back. False: the fence refused.
create or replace function stepwell.forget_waits(_id uuid, _epoch integer, _keys text[]) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
  if not stepwell.still_held(_id, _epoch) then
    return false;
  end if;
  with forgotten as (
    delete from stepwell.step s
    where s.job_id = _id and s.key = any (_keys) and s.kind in ('wait', 'receive')
    returning s.kind, s.event, s.event_id, s.value
  )
  insert into stepwell.event (id, emitted_at, expires_at, job_id, name, key, value)
  overriding system value
  -- Under its old number: it is still the first in line.
  select f.event_id, stepwell.now(), 'infinity', _id, f.event, '', f.value
  from forgotten f
  where f.kind = 'receive' and f.event_id is not null
  -- As they were sent: stepwell.deliver_events passes over one that is put in after a later one.
  order by f.event_id;
  return true;
end
$$;
-- A new job that begins with all that another, live or finished, had saved before a step; of a chain or machine, at that
-- step. Children that had not ended are spawned anew. Returns its id, or null if there is no such job.
create or replace function stepwell.fork(_id uuid, _step text) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _new uuid := stepwell.uuid7();
  _job record;
  _state record;
begin
  select j.task, j.queue, j.rank, j.args, j.metadata, j.max_attempts, null as failed_step,
    stepwell.timeline(j.id) as steps
  into _job
  from stepwell.job j where j.id = _id for share;
  if not found then
    select h.task, h.queue, h.rank, h.args, h.metadata, h.max_attempts, h.failed_step, h.steps into _job
    from stepwell.history h where h.id = _id limit 1;
    if not found then
      return null;
    end if;
  end if;
  select u.key, u.n, u.kind, u.value into _state from stepwell.unfold(_job.steps) u where u.key = _step;
  if not found and _job.failed_step = _step then
    -- Where it failed, and nothing is saved of that: all it has was before.
    _state.n := 2147483647;
  elsif not found then
    raise exception using errcode = 'SW004',
      message = format('stepwell: job %s has no step %s: "stepwell jobs show %1$s" lists those that it has', _id,
        quote_literal(_step));
  end if;
  insert into stepwell.step (job_id, saved_at, until, event_id, child_id, seconds, n, epoch, fingerprint, pending,
    timed_out, undo, large, kind, key, event, event_key, value, error)
  select _new, u.saved_at, u.until, u.event_id, u.child_id, u.seconds, u.n, 0, u.fingerprint, u.pending, u.timed_out,
    false, u.large, u.kind, u.key, u.event, u.event_key, u.value, u.error
  from stepwell.unfold(_job.steps) u
  where u.kind <> 'undo' and not (u.kind = 'child' and u.pending)
    -- Nor the tries of that step, which come before it if they were far apart.
    and not (u.kind = 'retry' and starts_with(u.key, _step || '~'))
    and case when _state.kind = 'state' then u.kind = 'state' and u.n <= _state.n else u.n < _state.n end;
  insert into stepwell.large_value (job_id, expires_at, key, value)
  select _new, 'infinity', v.key, v.value from stepwell.large_value v
  where v.job_id = _id
    and exists (select from stepwell.step s where s.job_id = _new and s.key = v.key and s.large);
  insert into stepwell.job (id, run_at, enqueued_at, max_attempts, rank, state, task, queue, args, metadata, durable,
    forked_from, cursor, input)
  values (_new, _now, _now, _job.max_attempts, _job.rank, 'ready', _job.task, _job.queue, _job.args, _job.metadata, true,
    _id,
    case when _state.kind = 'state' and _state.n > 1 then _state.key end,
    case when _state.kind = 'state' and _state.n > 1 then _state.value end);
  perform stepwell.notify_ready(array[_job.queue], null);
  return _new;
end
$$;
-- Give back, no attempt used, what a worker holds and does not know of: the claim that took it was committed, but its
-- reply was lost. (_ids, _epochs) are the jobs that the worker does know. Returns the ids of the others; null if a claim
-- is still under way, on a connection that was lost: ask again.
create or replace function stepwell.hand_back_unknown(_worker_id uuid, _ids uuid[], _epochs integer[]) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _unknown uuid[];
  _at integer[];
begin
  perform from stepwell.worker w where w.id = _worker_id for update skip locked;
  if not found then
    return null;
  end if;
  with held as materialized (
    select j.id, j.epoch from stepwell.job j where j.worker_id = _worker_id and j.state = 'running'
  )
  select array_agg(h.id), array_agg(h.epoch) into _unknown, _at
  from held h
  where not exists (select from unnest(_ids, _epochs) as k (id, epoch) where k.id = h.id and k.epoch = h.epoch);
  if _unknown is null then
    return '{}';
  end if;
  perform stepwell.snooze(_unknown, _at, array_fill(0::double precision, array[cardinality(_unknown)]));
  return _unknown;
end
$$;
-- What a durable job has saved, for the worker that claims it: its cursor and its steps. Large values are left out.
create or replace function stepwell.journal(_id uuid, _cursor text, _input json, _undoing json) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return json_build_object(
    'cursor', _cursor,
    'input', _input,
    'undoing', _undoing is not null,
    'steps', (
      select json_agg(
        json_build_array(
          s.key, s.n, s.kind, s.pending, s.timed_out, s.large, s.undo, s.fingerprint, s.child_id, s.error, s.value
        )
        order by s.n
      )
      from stepwell.step s
      where s.job_id = _id and s.kind <> 'taken'
    )
  );
end
$$;
-- The keys of those steps of a job's history that it has when it is tried again; see stepwell.retry. Those of a chain or
-- machine only tell where it has been, so they stay.
create or replace function stepwell.kept_steps(_steps json, _failed_step text, _step text, _from_start boolean)
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with all_steps as materialized (
    select u.key, u.n, u.kind, u.pending, u.error from stepwell.unfold(_steps) u
  )
  select array_agg(a.key)
  from all_steps a
  where a.kind in ('state', 'taken')
    or (
      not _from_start
      and not exists (select from all_steps b where b.kind = 'undo')
      and not (a.kind = 'child' and a.pending)
      and a.key is distinct from _failed_step
      and (a.error ->> 'anew') is null
      -- Nor its tries, nor those of the step it goes back to.
      and (a.kind = 'retry' and starts_with(a.key, _failed_step || '~')) is not true
      and (a.kind = 'retry' and starts_with(a.key, _step || '~')) is not true
      and coalesce(a.n < (select b.n from all_steps b where b.key = _step), true)
    )
$$;
-- The value of a step that was too large to come with the claim.
create or replace function stepwell.large_value(_job_id uuid, _key text) returns json
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select v.value from stepwell.large_value v where v.job_id = _job_id and v.key = _key limit 1
$$;
-- Lead the fleet, or go on leading: true if this worker does, until _lease seconds from now. One leads at a time; a leader
-- that fell silent, left, or whose session is gone is succeeded. All that a leader does can be done twice, so a wrong
-- guess costs nothing.
create or replace function stepwell.lead(_worker_id uuid, _lease double precision default 5) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _until timestamptz := _now + _lease * interval '1 second';
  _leader record;
  _free boolean := false;
begin
  update stepwell.leader l set lease_until = _until where l.worker_id = _worker_id;
  if found then
    return true;
  end if;
  select l.worker_id, l.lease_until, w.number, w.lock_held into _leader
  from stepwell.leader l left join stepwell.worker w on w.id = l.worker_id;
  if found then
    if _leader.lock_held then
      _free := pg_try_advisory_lock_shared(1937007981, _leader.number);
      if _free then
        perform pg_advisory_unlock_shared(1937007981, _leader.number);
      end if;
    end if;
    -- A lease that ends too late was given before the clock was set back.
    if _leader.number is not null and not _free and _leader.lease_until between _now and _now + 2 * _lease * interval '1 second' then
      return false;
    end if;
    update stepwell.leader l set worker_id = _worker_id, since = _now, lease_until = _until
    where l.worker_id = _leader.worker_id;
    return found;
  end if;
  insert into stepwell.leader (worker_id, since, lease_until) values (_worker_id, _now, _until)
  on conflict on constraint leader_pkey do nothing;
  return found;
end
$$;
-- Lock jobs, their parents and, if asked, all that descends from them, in the order of their ids: who ends children locks
-- their parents, and who ends parents their children, and neither may wait for the other. Returns what was locked, but for
-- the parents: what comes back from history a moment later is not among that, and not for the caller to touch.
create or replace function stepwell.lock_family(_ids uuid[], _parent_ids uuid[], _descendants boolean) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _below uuid[] := '{}';
  _level uuid[];
  _found uuid[];
  _locked uuid[];
begin
  loop
    _found := '{}';
    _level := case when _descendants then _ids else '{}' end;
    while cardinality(_level) > 0 loop
      -- In the order of the index on parents: so a plan that was made while the table was empty takes no other.
      _level := array(select j.id from stepwell.job j where j.parent_id = any (_level) order by j.parent_id);
      _found := _found || _level;
    end loop;
    _locked := array(
      select l.id from (
        select j.id from stepwell.job j
        where j.id = any (_ids || coalesce(_parent_ids, '{}') || _found)
        order by j.id
        for update
      ) l
    );
    -- One of them may have spawned before it was locked.
    exit when _found <@ _below;
    _below := _found;
  end loop;
  -- Not a condition of the above: Postgres would apply it before it locks.
  return array(select l.id from unnest(_locked) as l (id) where l.id = any (_ids || _found));
end
$$;
-- Lock running jobs that are about to be given back, in the order of their ids. One that was asked to stop ends with that: then
-- they are locked with their parents and all that descends from them, as whoever cancels or ends a parent does. So nothing may be
-- locked before: a child that is held while its parent is waited for is what the parent's end waits for.
create or replace function stepwell.lock_to_give_back(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _cancelling uuid[];
  _parent_ids uuid[];
begin
  -- Said so, here and below, because the bare column would tempt the planner to the index on all that is being cancelled.
  perform from stepwell.job j
  where j.id = any (_ids)
    and not exists (select from stepwell.job c where c.id = any (_ids) and c.cancelling is distinct from false)
  order by j.id
  for no key update;
  if found then
    return;
  end if;
  select array_agg(j.id), array_agg(j.parent_id) into _cancelling, _parent_ids
  from stepwell.job j
  where j.id = any (_ids) and j.cancelling is distinct from false;
  perform stepwell.lock_family(_cancelling, _parent_ids || _ids, true);
end
$$;
-- Make the partitions that rows kept for so many seconds will need today and in the next two days, where they are
-- missing. Rows that came too early and went to the default partition are moved. Returns the names of the new ones.
create or replace function stepwell.make_partitions(_keeps double precision[]) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- A finish that waits for this waits no longer than this; the next round of upkeep tries again.
set lock_timeout = '1s'
set timezone = 'UTC'
as $$
declare
  _now timestamptz := stepwell.now();
  _parent text;
  _day timestamptz;
  _name text;
  _made text[] := '{}';
begin
  perform pg_advisory_xact_lock(1937007982, 0);
  for _parent, _day in
    select p.name, d.day
    from unnest(array['history', 'failure']) as p (name)
    cross join (
      select distinct date_trunc('day', _now + k.keep * interval '1 second') + n * interval '1 day' as day
      from unnest(_keeps) as k (keep) cross join generate_series(0, 2) as n
      where k.keep > 0 and k.keep < 3155760000
    ) d
    -- History first, as in stepwell.fail: two that take both default partitions must not wait for each other.
    order by 1 desc, 2
  loop
    _name := _parent || to_char(_day, '_YYYYMMDD');
    continue when to_regclass('stepwell.' || _name) is not null;
    execute format('lock table stepwell.%I in access exclusive mode', _parent || '_default');
    execute format('create table stepwell.%I (like stepwell.%I including all)', _name, _parent);
    execute format(
      'with moved as (delete from stepwell.%I d where d.expires_at >= %L and d.expires_at < %L returning d.*) '
      'insert into stepwell.%I select m.* from moved m',
      _parent || '_default', _day, _day + interval '1 day', _name
    );
    execute format(
      'alter table stepwell.%I attach partition stepwell.%I for values from (%L) to (%L)',
      _parent, _name, _day, _day + interval '1 day'
    );
    _made := _made || _name;
  end loop;
  return _made;
end
$$;
-- Mark the steps that failed beside the one with which a job fails, and their tries: they are taken anew when that is. The jobs
-- are locked by the caller. _besides[k] is a JSON array of keys; null: none.
create or replace function stepwell.mark_beside(_ids uuid[], _epochs integer[], _besides text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _held record;
begin
  for _held in
    select u.id, array(select json_array_elements_text(u.beside::json)) as keys
    from unnest(_ids, _epochs, _besides) as u (id, epoch, beside)
    join stepwell.job j on j.id = u.id
    where u.beside <> '[]' and j.epoch = u.epoch and j.worker_id is not null
  loop
    update stepwell.step s set error = (s.error::jsonb || '{"anew": true}')::json
    where s.job_id = _held.id and s.error is not null
      and (s.key = any (_held.keys) or s.kind = 'retry' and regexp_replace(s.key, '~\d+$', '') = any (_held.keys));
  end loop;
end
$$;
-- Tell those who wait for results which jobs ended, if anybody waits: a process that does holds the advisory lock
-- (1937007980, 0) shared, so when the exclusive lock is to be had nobody listens and nothing is sent.
create or replace function stepwell.notify_done(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _first integer := 1;
begin
  if _ids is null then
    return;
  end if;
  if pg_try_advisory_lock(1937007980, 0) then
    perform pg_advisory_unlock(1937007980, 0);
    return;
  end if;
  -- A payload holds less than 8000 bytes, an id and its comma take 37.
  while _first <= cardinality(_ids) loop
    perform pg_notify('stepwell_done', array_to_string(_ids[_first : _first + 199], ','));
    _first := _first + 200;
  end loop;
end
$$;
-- A hint to the workers: these queues have something ready, and something else is due in so many seconds.
create or replace function stepwell.notify_ready(_queues text[], _due_in double precision) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('stepwell_ready', q.name) from (select distinct u.name from unnest(_queues) as u (name)) q;
  if _due_in is not null then
    perform pg_notify('stepwell_due', ceil(_due_in * 1000)::bigint::text);
  end if;
end
$$;
-- The one clock, for every role. Tests may stop it by a row in stepwell.clock.
create or replace function stepwell.now() returns timestamptz
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select c.at from stepwell.clock c limit 1), clock_timestamp())
$$;
-- Claim nothing more of a queue, a task, for a worker, or anything at all, until it is resumed; what runs goes on.
create or replace function stepwell.pause(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into stepwell.control (action, scope, name, asked_at)
  select 'pause', c.scope, c.name, stepwell.now() from stepwell.control_scope(_queue, _task, _worker, _everything) c
  on conflict on constraint control_pkey do nothing;
  perform pg_notify('stepwell_control', '');
end
$$;
-- Let a schedule rest until it is resumed; false: there is none. Runs that it has enqueued go on.
create or replace function stepwell.pause_schedule(_owner text, _name text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update stepwell.schedule s
  set paused_at = coalesce(s.paused_at, stepwell.now()), next_tick_at = null, version = s.version + 1
  where s.owner = _owner and s.name = _name;
  return found;
end
$$;
-- Make due jobs ready, in the order of their times: those that were put off, and those that wait and whose time has come.
-- Returns how many, and in how many seconds the next one is due (0: more are due already; null: none).
create or replace function stepwell.promote(_limit integer default 5000, out promoted integer, out next_due double precision)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  _now timestamptz := stepwell.now();
  _queues text[];
  _durable uuid[];
begin
  with due as materialized (
    select j.ctid
    from stepwell.job j
    where j.state in ('scheduled', 'waiting') and j.run_at <= _now
    order by j.run_at
    limit _limit
    for no key update skip locked
  ), made as (
    update stepwell.job j
    set state = 'ready'
    where j.ctid = any (array(select d.ctid from due d))
    returning j.id, j.queue, j.durable
  )
  select count(*), array_agg(distinct m.queue), array_agg(m.id) filter (where m.durable)
  into promoted, _queues, _durable
  from made m;
  if _durable is not null then
    perform stepwell.end_waits(_durable);
  end if;
  perform stepwell.notify_ready(_queues, null);
  select greatest(0, extract(epoch from j.run_at - _now)) into next_due
  from stepwell.job j where j.state in ('scheduled', 'waiting') and j.run_at < 'infinity' order by j.run_at limit 1;
end
$$;
-- Drop the partitions whose day is over, and delete what has expired in the default partitions
-- and among large values.
-- Returns the names of what was dropped. A partition somebody reads is left for the next round.
create or replace function stepwell.prune(_limit integer default 10000) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
set timezone = 'UTC'
as $$
declare
  _now timestamptz := stepwell.now();
  _name text;
  _dropped text[] := '{}';
begin
  if not pg_try_advisory_xact_lock(1937007982, 0) then
    return _dropped;
  end if;
  for _name in
    select c.relname
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent in ('stepwell.history'::regclass, 'stepwell.failure'::regclass)
      and c.relname ~ '_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD')::timestamptz + interval '1 day' <= _now
    order by c.relname
    limit 100
  loop
    begin
      execute format('drop table stepwell.%I', _name);
      _dropped := _dropped || _name;
    exception when lock_not_available then
      exit; -- whoever reads one reads the parent, and would be waited for again with each
    end;
  end loop;
  foreach _name in array array['history_default', 'failure_default', 'large_value'] loop
    execute format(
      'delete from stepwell.%1$I d where d.ctid = any (array('
      'select e.ctid from stepwell.%1$I e where e.expires_at <= $1 limit $2))',
      _name
    ) using _now, _limit;
  end loop;
  return _dropped;
end
$$;
-- Forget expired events. Returns how many.
create or replace function stepwell.prune_events(_limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _forgotten integer;
begin
  delete from stepwell.event e
  where e.id = any (array(
    select x.id from stepwell.event x where x.expires_at <= stepwell.now() order by x.expires_at limit _limit
    for update skip locked
  ));
  get diagnostics _forgotten = row_count;
  return _forgotten;
end
$$;
-- Forget the counters of minutes long past. Returns how many.
create or replace function stepwell.prune_stats(_keep interval default '7 days', _limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _pruned integer;
begin
  delete from stepwell.stat s
  where s.ctid = any (array(
    select o.ctid from stepwell.stat o where o.minute < stepwell.now() - _keep order by o.minute limit _limit
    for update skip locked
  ));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
-- Forget all but the newest _keep ticks of each schedule, and note until when. Returns how many.
create or replace function stepwell.prune_ticks(_keep integer default 1000, _limit integer default 10000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _pruned integer;
begin
  with long as materialized (
    select s.id, newest.at
    from stepwell.schedule s
    cross join lateral (
      select k.at from stepwell.tick k where k.schedule_id = s.id order by k.at desc offset _keep limit 1
    ) newest
    order by s.id
    for update of s skip locked
  ), old as (
    select t.schedule_id, t.at
    from long l
    join stepwell.tick t on t.schedule_id = l.id and t.at <= l.at
    order by t.schedule_id, t.at
    limit _limit
  ), gone as (
    delete from stepwell.tick t using old o where t.schedule_id = o.schedule_id and t.at = o.at
    returning t.schedule_id, t.at
  ), forgotten as (
    update stepwell.schedule s set forgotten_until = greatest(s.forgotten_until, g.at)
    from (select o.schedule_id, max(o.at) as at from old o group by o.schedule_id) g
    where s.id = g.schedule_id
  )
  select count(*) into _pruned from gone;
  return _pruned;
end
$$;
-- Make or change schedules of an owner, by name, one element for each. Where the timing stays as it was, so does the next
-- tick: what was missed while nobody ran is still due. Else it is _nexts[k], reckoned by the caller from stepwell.now().
-- _declared: they stand in code. One that does is not changed by a call that says otherwise.
create or replace function stepwell.put_schedules(
  _owner text,
  _declared boolean,
  _names text[],
  _tasks text[],
  _args text[],
  _queues text[],
  _priorities integer[],
  _crons text[],
  _tzs text[],
  _everies double precision[],
  _overlaps text[],
  _catchups integer[],
  _jitters double precision[],
  _nexts timestamptz[]
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _in_code text;
begin
  -- In the order in which tick locks them.
  perform from stepwell.schedule s where s.owner = _owner and s.name = any (_names) order by s.id for update;
  if not _declared then
    select s.name into _in_code from stepwell.schedule s
    where s.owner = _owner and s.name = any (_names) and s.declared limit 1;
    if found then
      raise exception using errcode = 'SW002',
        message = format('stepwell: schedule %s of %s stands in code: change it there, or give this one another name', _in_code, _owner);
    end if;
  end if;
  insert into stepwell.schedule as s (id, owner, name, task, args, queue, rank, cron, tz, every, overlap, catchup, jitter,
    declared, declared_at, created_at, next_tick_at)
  select stepwell.uuid7(), _owner, u.name, u.task, u.args::json, u.queue, -u.priority, u.cron, u.tz, u.every, u.overlap,
    u.catchup, u.jitter, _declared, _now, _now, u.next
  from unnest(_names, _tasks, _args, _queues, _priorities, _crons, _tzs, _everies, _overlaps, _catchups, _jitters, _nexts)
    as u (name, task, args, queue, priority, cron, tz, every, overlap, catchup, jitter, next)
  order by u.name
  on conflict on constraint schedule_name do update
  set task = excluded.task, args = excluded.args, queue = excluded.queue, rank = excluded.rank, cron = excluded.cron,
    tz = excluded.tz, every = excluded.every, overlap = excluded.overlap, catchup = excluded.catchup,
    jitter = excluded.jitter, declared = excluded.declared, declared_at = excluded.declared_at,
    version = s.version + case
      when (s.task, s.args::text, s.queue, s.rank, s.cron, s.tz, s.every, s.overlap, s.catchup, s.jitter, s.declared)
        is not distinct from (excluded.task, excluded.args::text, excluded.queue, excluded.rank, excluded.cron, excluded.tz,
          excluded.every, excluded.overlap, excluded.catchup, excluded.jitter, excluded.declared) then 0
      else 1
    end,
    next_tick_at = case
      when s.paused_at is not null then null
      when (s.cron, s.tz, s.every) is not distinct from (excluded.cron, excluded.tz, excluded.every)
        then coalesce(s.next_tick_at, excluded.next_tick_at)
      else excluded.next_tick_at
    end;
  perform pg_notify('stepwell_tick', '');
end
$$;
-- The names of the queues that have ready jobs, are not paused, and fit one of these patterns: a name, or the beginning of
-- names with a * after it. From queue to queue along the claim index, so that it costs no more when they are deep.
create or replace function stepwell.ready_queues(_patterns text[]) returns setof text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
  return query
    with recursive found as (
      (select j.queue as name from stepwell.job j where j.state = 'ready' order by j.queue limit 1)
      union all
      select (
        select j.queue from stepwell.job j
        where j.state = 'ready' and j.queue > f.name
        order by j.queue limit 1
      )
      from found f
      where f.name is not null
    )
    select f.name from found f
    where exists (
        select from unnest(_patterns) as p (pattern)
        where f.name = p.pattern or (right(p.pattern, 1) = '*' and starts_with(f.name, left(p.pattern, -1)))
      )
      and not exists (
        select from stepwell.control c where c.action = 'pause' and c.scope = 'queue' and c.name = f.name
      );
end
$$;
-- Enter a worker with its first lease. _age and _begun: if it lost the lease it had, for how many seconds it has run, and its
-- number when it started. _owner, _schedules and _stale_after say whose schedules stand in its code.
create or replace function stepwell.register_worker(
  _host text,
  _pid integer,
  _version text,
  _queues text[],
  _tasks text,
  _concurrency integer,
  _lease double precision,
  _age double precision default 0,
  _begun integer default null,
  _owner text default null,
  _schedules text[] default '{}',
  _stale_after double precision default null
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _id uuid := stepwell.uuid7();
begin
  insert into stepwell.worker (id, host, pid, version, queues, tasks, concurrency, started_at, renewed_at,
    lease_until, begun, owner, schedules, stale_after)
  values (_id, _host, _pid, _version, _queues, _tasks::jsonb, _concurrency, _now - _age * interval '1 second', _now,
    _now + _lease * interval '1 second', _begun, _owner, _schedules, _stale_after);
  return _id;
end
$$;
-- Delete schedules of an owner, with what is known of their ticks; jobs that they enqueued stay. Returns their names.
-- _names: these, or, with _except, all but these. _declared: only those that stand in code; null: all.
create or replace function stepwell.remove_schedules(
  _owner text,
  _names text[],
  _except boolean default false,
  _declared boolean default null
) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _gone uuid[];
  _names_gone text[];
begin
  with gone as (
    select s.id, s.name from stepwell.schedule s
    where s.owner = _owner and (s.name = any (_names)) <> _except and s.declared = coalesce(_declared, s.declared)
    order by s.id
    for update
  )
  select coalesce(array_agg(g.id), '{}'), coalesce(array_agg(g.name order by g.name), '{}') into _gone, _names_gone from gone g;
  delete from stepwell.tick t where t.schedule_id = any (_gone);
  delete from stepwell.schedule s where s.id = any (_gone);
  return _names_gone;
end
$$;
-- Remove the schedules that were defined in code and have stood in no live worker's code for as long as a live worker of
-- their owner says. Old and new code run side by side during a deploy: what either has is not stale, and the wait after
-- the last worker that had it lets a roll-back find it as it was. Returns their names, each with its owner's.
create or replace function stepwell.remove_stale_schedules() returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _stale record;
  _removed text[] := '{}';
begin
  -- Not at each look: a row that is written for nothing is a row to be vacuumed.
  update stepwell.schedule s set declared_at = _now
  where s.id in (
    select d.id from stepwell.schedule d
    where d.declared and d.declared_at < _now - interval '10 seconds'
      and exists (
        select from stepwell.worker w
        where w.owner = d.owner and w.lease_until > _now and d.name = any (w.schedules)
          and d.declared_at < _now - least(60, coalesce(w.stale_after, 60) / 4) * interval '1 second'
      )
    order by d.id
    for update skip locked
  );
  for _stale in
    select s.owner, array_agg(s.name) as names
    from stepwell.schedule s
    where s.declared
      and not exists (
        select from stepwell.worker w where w.owner = s.owner and w.lease_until > _now and s.name = any (w.schedules)
      )
      and exists (
        select from stepwell.worker w
        where w.owner = s.owner and w.lease_until > _now and s.declared_at <= _now - w.stale_after * interval '1 second'
      )
    group by s.owner
  loop
    _removed := _removed || array(
      select format('%s of %s', r.name, _stale.owner)
      from unnest(stepwell.remove_schedules(_stale.owner, _stale.names, _declared => true)) as r (name)
    );
  end loop;
  return _removed;
end
$$;
-- Give back what a dead worker holds, and take it off the registry. Returns the ids of those jobs.
-- Nothing is waited for, but a schedule's row for a moment (admit). A claim or a commit that is still under way may belong to a worker that was stopped or cut off,
-- and then it lasts for as long as the server believes in the connection. What is locked so stays, and the worker's row
-- with it; the next rescue looks again.
create or replace function stepwell.remove_worker(_worker_id uuid, _message text, _tasks jsonb) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _given uuid[];
  _idle boolean;
begin
  -- With the row no claim is under way, so the statements that follow see all that it holds.
  perform from stepwell.worker w where w.id = _worker_id for update skip locked;
  _idle := found;
  _given := stepwell.fail_held(_worker_id, _message, _tasks);
  if _idle then
    delete from stepwell.worker w
    where w.id = _worker_id
      and not exists (select from stepwell.job j where j.worker_id = _worker_id and j.state = 'running');
    delete from stepwell.control c where c.scope = 'worker' and c.name = _worker_id::text;
    delete from stepwell.leader l where l.worker_id = _worker_id;
  end if;
  return _given;
end
$$;
-- Renew a worker's lease and see to it that this session holds the worker's advisory lock (1937007981, number), by
-- which peers tell that it lives. Returns what is asked of it: the jobs it must stop, what is paused, and whether it must
-- stop itself; and its number. No row: it was declared dead and must start anew.
create or replace function stepwell.renew(
  _worker_id uuid,
  _lease double precision,
  _running integer
) returns table (
  cancelling uuid[],
  paused boolean,
  paused_queues text[],
  paused_tasks text[],
  stopping boolean,
  number integer
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz;
  _number integer;
  _held boolean;
begin
  select w.number into _number from stepwell.worker w
  where w.id = _worker_id and w.lease_until > 'epoch' -- where rescue puts it
  for no key update;
  if not found then
    return;
  end if;
  -- Only now: whoever sets the clock in a test moves the leases along, and we may have waited for that.
  _now := stepwell.now();
  _held := exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.classid = 1937007981 and l.objid = _number::oid and l.objsubid = 2
      and l.pid = pg_backend_pid() and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  ) or pg_try_advisory_lock(1937007981, _number);
  update stepwell.worker w
  set renewed_at = _now, lease_until = _now + _lease * interval '1 second', running = _running, lock_held = _held,
    lock_missing_since = null
  where w.id = _worker_id;
  return query
    select array(select j.id from stepwell.job j where j.worker_id = _worker_id and j.cancelling),
      coalesce(bool_or(c.scope = 'everything' or (c.scope = 'worker' and c.name = _worker_id::text)), false),
      coalesce(array_agg(c.name) filter (where c.scope = 'queue'), '{}'),
      coalesce(array_agg(c.name) filter (where c.scope = 'task'), '{}'),
      exists (select from stepwell.stopping_workers s where s.id = _worker_id), _number
    from stepwell.control c where c.action = 'pause';
end
$$;
-- Write what running handlers say of their progress; stale ones are ignored.
create or replace function stepwell.report_progress(_ids uuid[], _epochs integer[], _progress text[]) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- As in stepwell.finish.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
  with said as (
    select u.id, u.epoch, u.progress from unnest(_ids, _epochs, _progress) as u (id, epoch, progress) order by u.id
  )
  update stepwell.job j set progress = s.progress::json
  from said s
  where j.id = any (_ids) and j.id = s.id and j.epoch = s.epoch and j.worker_id is not null
$$;
-- Give back what dead workers held, through the same fail as any error, and take them off the registry.
-- A worker is dead when its lease has ended, or when its session's advisory lock was found free by two looks at
-- least _patience seconds apart: sooner a mere reconnect would count, and after a restart of Postgres all reconnect.
-- No more than _limit workers are rescued from at once. Returns the ids of the rescued jobs.
create or replace function stepwell.rescue(_patience double precision default 1, _limit integer default 20) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _rescued uuid[] := '{}';
  _worker record;
  _free boolean;
  _dead uuid[] := '{}';
  _messages text[] := '{}';
  _tasks jsonb[] := '{}';
begin
  for _worker in
    select w.id, w.number, w.host, w.pid, w.tasks, w.renewed_at, w.lease_until, w.lock_held, w.lock_missing_since
    from stepwell.worker w
    where w.lock_held or w.lease_until <= _now or w.renewed_at > _now + interval '1 second'
    order by w.id
  loop
    if _worker.lease_until > _now then
      -- The clock was set back since: a lease that was given by the old time begins now, or it would last too long.
      if _worker.renewed_at > _now + interval '1 second' then
        update stepwell.worker w
        set renewed_at = _now, lease_until = _now + (w.lease_until - w.renewed_at), lock_missing_since = null
        where w.id = _worker.id and w.renewed_at = _worker.renewed_at and w.lease_until = _worker.lease_until;
        continue when not found;
        _worker.lock_missing_since := null;
      end if;
      continue when not _worker.lock_held;
      -- Shared, so that two who look at once do not take each other for the worker.
      _free := pg_try_advisory_lock_shared(1937007981, _worker.number);
      if _free then
        perform pg_advisory_unlock_shared(1937007981, _worker.number);
      end if;
      -- One that was missed later than now was so before the clock was set back: from here on it is counted anew.
      if _free <> (_worker.lock_missing_since is not null) or _worker.lock_missing_since > _now then
        update stepwell.worker w set lock_missing_since = case when _free then _now end where w.id = _worker.id;
      end if;
      continue when not _free or _worker.lock_missing_since is null
        or _worker.lock_missing_since > _now - _patience * interval '1 second';
    end if;
    -- A renewal that came in between clears lock_missing_since and moves the lease: then the worker lives.
    update stepwell.worker w set lease_until = 'epoch'
    where w.id = _worker.id and (w.lease_until <= _now or w.lock_missing_since = _worker.lock_missing_since);
    continue when not found;
    _dead := _dead || _worker.id;
    _messages := _messages
      || format('worker %s (pid %s on %s) died while it ran this job', _worker.id, _worker.pid, _worker.host);
    _tasks := _tasks || _worker.tasks;
    exit when cardinality(_dead) >= _limit;
  end loop;

  -- Nothing should ever be held by a worker that is not registered; if it is, it must not stay so. From holder to holder
  -- along the index, so that it costs no more when they hold much.
  for _worker in
    with recursive holder as (
      (select j.worker_id as id from stepwell.job j where j.state = 'running' order by j.worker_id limit 1)
      union all
      select (
        select j.worker_id from stepwell.job j
        where j.state = 'running' and j.worker_id > h.id
        order by j.worker_id limit 1
      )
      from holder h
      where h.id is not null
    )
    select h.id from holder h
    where h.id <> all (_dead) and not exists (select from stepwell.worker w where w.id = h.id)
  loop
    _dead := _dead || _worker.id;
    _messages := _messages || format('worker %s is not registered', _worker.id);
    _tasks := _tasks || '{}'::jsonb;
  end loop;

  -- Last, because from here on nothing is waited for, or not for long (admit), while jobs are locked: nothing can deadlock.
  for _k in 1 .. cardinality(_dead) loop
    _rescued := _rescued || stepwell.remove_worker(_dead[_k], _messages[_k], _tasks[_k]);
  end loop;
  return _rescued;
end
$$;
-- Begin running jobs again with new args and no steps, now, with fresh attempts. What their children still do goes on by
-- itself. Which events were taken is remembered for as long as these are kept. Returns the ids refused by the fence.
create or replace function stepwell.restart(_ids uuid[], _epochs integer[], _args text[]) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _cancelling uuid[];
  _queues text[];
begin
  perform stepwell.lock_to_give_back(_ids);
  with restarted as (
    update stepwell.job j
    set args = u.args::json, state = 'ready', run_at = _now, attempt = 0, worker_id = null, cursor = null, input = null,
      progress = null, awaits = null
    from unnest(_ids, _epochs, _args) as u (id, epoch, args)
    where j.id = any (_ids) and j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    returning j.id, j.queue, j.cancelling
  )
  select array_agg(r.id), array_agg(r.id) filter (where r.cancelling), array_agg(distinct r.queue)
  into _accepted, _cancelling, _queues
  from restarted r;
  delete from stepwell.step s
  where s.job_id = any (_accepted)
    and not exists (select from stepwell.event e where e.id = s.event_id and e.job_id is null);
  update stepwell.step s
  set kind = 'taken', key = 'taken/' || s.event_id, value = null, awaited = null
  where s.job_id = any (_accepted) and s.kind <> 'taken';
  delete from stepwell.large_value v where v.job_id = any (_accepted);
  perform stepwell.notify_ready(_queues, null);
  if _cancelling is not null then
    perform stepwell.cancel(_cancelling);
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (coalesce(_accepted, '{}')));
end
$$;
-- How jobs ended, for those who wait: a row for each that is finished, or that is not known at all (state null).
-- Live jobs give no row: wait on.
create or replace function stepwell.results(_ids uuid[]) returns table (
  id uuid,
  state stepwell.state,
  task text,
  result json,
  error text,
  type text,
  message text,
  traceback text
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
  -- One statement, so that a job on its way from live to finished, or back by a retry, is seen in exactly one place.
  return query
    select i.id, h.state, h.task, h.result, h.error, f.type, f.message, f.traceback
    from unnest(_ids) as i (id)
    left join lateral (
      select h.state, h.task, h.result, h.error from stepwell.history h where h.id = i.id limit 1
    ) h on true
    left join lateral (
      select f.type, f.message, f.traceback
      from stepwell.failure f
      cross join lateral (select left(f.type || ': ' || f.message, 1000) as line) l
      where f.job_id = i.id and h.state = 'failed'
        -- The newest may be of a run that undid the job: the one it failed with is that of which stepwell.fail made its error.
        and (h.error = l.line or starts_with(h.error, left(l.line || '; and undoing it failed: ', 1000)))
      order by f.epoch desc limit 1
    ) f on true
    -- Lateral, too, for the plan: each is looked up by its id.
    left join lateral (select true as found from stepwell.job j where j.id = i.id limit 1) live on true
    where live.found is null;
end
$$;
-- Claim again what was paused: exactly that, so a queue stays paused while everything is. False: it was not paused.
create or replace function stepwell.resume(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _resumed boolean;
begin
  delete from stepwell.control p
  using stepwell.control_scope(_queue, _task, _worker, _everything) c
  where p.action = 'pause' and p.scope = c.scope and p.name = c.name;
  _resumed := found;
  perform pg_notify('stepwell_control', '');
  return _resumed;
end
$$;
-- Let a paused schedule go on, from _next, which the caller reckoned for _version of it; false: it has changed since, or is
-- gone. What was due while it rested is not made up for. One that does not rest stays as it is.
create or replace function stepwell.resume_schedule(_id uuid, _version integer, _next timestamptz) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update stepwell.schedule s
  set next_tick_at = case when s.paused_at is null then s.next_tick_at else _next end,
    paused_at = null, version = s.version + 1
  where s.id = _id and s.version = _version;
  if not found then
    return false;
  end if;
  perform pg_notify('stepwell_tick', '');
  return true;
end
$$;
-- Try jobs again now: failed and cancelled ones come back from history under the same id with fresh attempts, the
-- epoch counts on; one that waits for its next try does not wait. Returns the ids that were made ready.
-- A durable job goes on where it stood, with all that it had saved and what it was sent, but for the step whose error it
-- failed with and the children that had not ended. With _step it goes back to that step, of a chain or machine to what that was last given;
-- with _from_start it begins anew, as does one that has been undone; both are for jobs that have ended.
create or replace function stepwell.retry(_ids uuid[], _step text default null, _from_start boolean default false)
returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _live uuid[];
  _ended uuid[];
  _back uuid[];
  _queues text[];
  _missing uuid;
  _sent uuid[];
begin
  -- Those that are live, then those that have ended, each in the order of their ids; and what is changed below is among
  -- them. One that has come back meanwhile, by another retry, is left to that.
  _live := array(
    select l.id from (select j.id from stepwell.job j where j.id = any (_ids) order by j.id for update) l
  );
  _ended := array(
    select l.id from (
      select h.id from stepwell.history h
      where h.id = any (_ids) and h.state in ('failed', 'cancelled')
      order by h.id
      for update
    ) l
  );
  if _step is not null then
    select h.id into _missing
    from stepwell.history h
    where h.id = any (_ids) and h.state in ('failed', 'cancelled')
      -- Where it failed it stands, whether there is anything saved of that or not.
      and h.failed_step is distinct from _step
      and not exists (select from stepwell.unfold(h.steps) s where s.key = _step)
    limit 1;
    if found then
      raise exception using errcode = 'SW004',
        message = format('stepwell: job %s has no step %s: "stepwell jobs show %1$s" lists those that it has', _missing,
          quote_literal(_step));
    end if;
  end if;

  _sent := array(select e.job_id from stepwell.event e where e.job_id = any (_ids));
  with revived as (
    delete from stepwell.history h
    where h.id = any (_ended)
    returning h.id, h.enqueued_at, h.claimed_at, h.epoch, h.max_attempts, h.rank, h.task, h.queue, h.args, h.metadata,
      h.schedule_id, h.scheduled_for, h.cursor, h.input, h.parent_id, h.parent_key, h.forked_from, h.failed_step, h.steps
  ), kept as materialized (
    select r.id, k.key, k.n, k.kind, k.epoch, k.saved_at, k.seconds, k.pending, k.timed_out, k.undo, k.large, k.until,
      k.fingerprint, k.child_id, k.event, k.event_key, k.event_id, k.value, k.error
    from revived r
    cross join lateral stepwell.kept_steps(r.steps, r.failed_step, _step, _from_start) as s (keys)
    cross join lateral stepwell.unfold(r.steps) k
    where k.key = any (s.keys)
  ), given_back as (
    -- What it had taken of what it was sent, by steps that it takes anew: under its old number, so still the first in line.
    insert into stepwell.event (id, emitted_at, expires_at, job_id, name, key, value)
    overriding system value
    select u.event_id, _now, 'infinity', r.id, u.event, '', u.value
    from revived r
    cross join lateral stepwell.unfold(r.steps) u
    where u.kind = 'receive' and u.event_id is not null
      and not exists (select from kept k where k.id = r.id and k.key = u.key)
  ), saved as (
    insert into stepwell.step (job_id, saved_at, until, event_id, child_id, seconds, n, epoch, fingerprint, pending,
      timed_out, undo, large, kind, key, event, event_key, value, error)
    select k.id, k.saved_at, k.until, k.event_id, k.child_id, k.seconds, k.n, k.epoch, k.fingerprint, k.pending,
      k.timed_out, k.undo, k.large, k.kind, k.key, k.event, k.event_key, k.value, k.error
    from kept k
  ), back as (
    insert into stepwell.job (id, run_at, enqueued_at, claimed_at, epoch, max_attempts, rank, state, task, queue,
      args, metadata, schedule_id, scheduled_for, parent_id, parent_key, forked_from, durable, cursor, input)
    select r.id, _now, r.enqueued_at, r.claimed_at, r.epoch, r.max_attempts, r.rank, 'ready', r.task, r.queue,
      r.args, r.metadata, r.schedule_id, r.scheduled_for, r.parent_id, r.parent_key, r.forked_from,
      -- So that its end sees to what it was sent and has not read.
      exists (select from kept k where k.id = r.id) or r.id = any (_sent)
        or exists (select from stepwell.unfold(r.steps) u where u.kind = 'receive'),
      case when s.first or _from_start then null else coalesce(_step_state.key, r.cursor) end,
      case when s.first or _from_start then null when _step_state.key is null then r.input else _step_state.value end
    from revived r
    -- The step of a chain or machine that was asked for, and whether it is the one that such a job begins with.
    left join lateral (
      select u.key, u.value from stepwell.unfold(r.steps) u where u.key = _step and u.kind = 'state'
    ) _step_state on true
    cross join lateral (
      select _step_state.key is not null and _step_state.key = (
        select u.key from stepwell.unfold(r.steps) u where u.kind = 'state' and u.n = 1
      ) as first
    ) s
    returning id, queue
  ), hurried as (
    update stepwell.job j
    set state = 'ready', run_at = _now
    -- As text, because the state itself would tempt the planner to the index on all scheduled jobs.
    where j.id = any (_live) and j.attempt > 0 and j.state::text = 'scheduled' and _step is null and not _from_start
    returning j.id, j.queue
  ), ready as (
    select b.id, b.queue from back b union all select h.id, h.queue from hurried h
  )
  select array_agg(r.id), array_agg(distinct r.queue) into _back, _queues from ready r;
  delete from stepwell.large_value v
  where v.job_id = any (_back)
    and not exists (select from stepwell.step s where s.job_id = v.job_id and s.key = v.key and s.large);
  update stepwell.large_value v set expires_at = 'infinity' where v.job_id = any (_back);
  update stepwell.event e set expires_at = 'infinity' where e.job_id = any (_back);
  perform stepwell.notify_ready(_queues, null);
  return coalesce(_back, '{}');
end
$$;
-- Set schedules, seen to be due at _dues[k], back to _nexts[k], which the caller reckoned from stepwell.now(), where their next tick lies beyond it, or
-- where there is none: the clock was ahead when that was reckoned and has been set back. What was fired for a time still
-- to come is on record, and is not fired twice; nothing is set back to before what is still on record. Returns how many.
create or replace function stepwell.rewind_schedules(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[]
) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _rewound integer;
begin
  with wrong as (
    select s.id, greatest(u.next, s.forgotten_until + interval '1 microsecond') as next
    from unnest(_ids, _versions, _dues, _nexts) as u (id, version, due, next)
    join stepwell.schedule s
      on s.id = u.id and s.version = u.version and s.next_tick_at is not distinct from u.due
    where s.paused_at is null
      and coalesce(s.next_tick_at > greatest(u.next, s.forgotten_until + interval '1 microsecond'), true)
    order by s.id
    for update of s skip locked
  )
  update stepwell.schedule s set next_tick_at = w.next from wrong w where s.id = w.id;
  get diagnostics _rewound = row_count;
  if _rewound > 0 then
    perform pg_notify('stepwell_tick', '');
  end if;
  return _rewound;
end
$$;
-- Save steps of running jobs, each once: the first to be written stays. The fence (id, epoch) is held by a lock until
-- this commits, so a job cannot go to another worker while a step of it is on its way.
-- An option is null (none has it), one element (the same for all) or one element per step. _values over 64 KB are named
-- in _large, and stored apart. Those in _replaced take the place of what was saved before.
-- Returns the ids of the jobs that were refused, and the time, which is also the value of steps of the kind 'now'.
create or replace function stepwell.save_steps(
  _ids uuid[],
  _epochs integer[],
  _keys text[],
  _ns integer[],
  _kinds text[],
  _values text[],
  _errors text[] default null,
  _fingerprints integer[] default null,
  _seconds double precision[] default null,
  _undos boolean[] default null,
  _large boolean[] default null,
  _replaced boolean[] default null,
  out refused uuid[],
  out saved_at timestamptz
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- As in stepwell.finish.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
declare
  _kind text := case when cardinality(_kinds) = 1 then _kinds[1] end;
  _undo boolean := coalesce(case when cardinality(_undos) = 1 then _undos[1] end, false);
  _held uuid[];
  _held_epochs integer[];
  _plain uuid[];
  _inserted integer;
begin
  saved_at := stepwell.now();
  -- Not a shared lock: the first step of a job updates its row, and two who shared it would wait for each other.
  with held as materialized (
    select j.id, j.epoch, j.durable from stepwell.job j
    where j.id = any (_ids) and j.worker_id is not null
    order by j.id
    for no key update
  )
  select array_agg(h.id), array_agg(h.epoch), array_agg(h.id) filter (where not h.durable)
  into _held, _held_epochs, _plain
  from held h;
  if _plain is not null then
    update stepwell.job j set durable = true where j.id = any (_plain);
  end if;
  if _replaced is not null then
    delete from stepwell.step s
    using (
      select u.id, u.key
      from unnest(_ids, _epochs, _keys, _replaced) as u (id, epoch, key, replaced)
      join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
      where u.replaced
    ) r
    where s.job_id = any (_ids) and s.job_id = r.id and s.key = r.key;
    delete from stepwell.large_value v
    using unnest(_ids, _epochs, _keys, _replaced) as u (id, epoch, key, replaced)
    join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where u.replaced and v.job_id = any (_held) and v.job_id = u.id and v.key = u.key;
  end if;
  insert into stepwell.step (job_id, saved_at, seconds, n, epoch, fingerprint, undo, large, kind, key, value, error)
  select u.id, save_steps.saved_at, u.seconds, u.n, u.epoch, u.fingerprint, coalesce(u.undo, _undo),
    coalesce(u.large, false), coalesce(u.kind, _kind), u.key,
    case
      when u.large then null
      when coalesce(u.kind, _kind) = 'now' then to_json(save_steps.saved_at)
      else u.value::json
    end,
    u.error::json
  from unnest(_ids, _epochs, _keys, _ns, _kinds, _values, _errors, _fingerprints, _seconds, _undos, _large)
    as u (id, epoch, key, n, kind, value, error, fingerprint, seconds, undo, large)
  join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
  on conflict (job_id, key) do nothing;
  get diagnostics _inserted = row_count;
  if _large is not null then
    insert into stepwell.large_value (job_id, expires_at, key, value)
    select u.id, 'infinity', u.key, u.value::json
    from unnest(_ids, _epochs, _keys, _values, _large) as u (id, epoch, key, value, large)
    join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where u.large
    on conflict (job_id, key) do nothing;
  end if;
  refused := '{}';
  if _inserted = cardinality(_ids) then
    return;
  end if;
  -- Some were refused, or had been saved before.
  refused := array(
    select distinct u.id from unnest(_ids, _epochs) as u (id, epoch)
    left join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where h.id is null
  );
end
$$;
-- All schedules that do not rest, with what is needed to reckon when each should be due next, a page at a time: those with
-- an id after _after. looked_at is the time by which to reckon.
create or replace function stepwell.schedule_times(_after uuid default null, _limit integer default 500) returns table (
  id uuid,
  name text,
  version integer,
  cron text,
  tz text,
  every double precision,
  catchup integer,
  due_at timestamptz,
  due_in double precision,
  looked_at timestamptz
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.id, s.name, s.version, s.cron, s.tz, s.every, s.catchup, s.next_tick_at,
    extract(epoch from s.next_tick_at - stepwell.now())::double precision, stepwell.now()
  from stepwell.schedule s
  where s.paused_at is null and (_after is null or s.id > _after)
  order by s.id
  limit _limit
$$;
-- The version of this schema, for every role that may use it.
create or replace function stepwell.schema_version() returns integer
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select max(m.version) from stepwell.migration m
$$;
-- Send something to one live job, which takes what it is sent in order, each once. False: there is no such live job.
create or replace function stepwell.send(job_id uuid, name text, value json default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
begin
  -- At commit the waits of others are looked for, and a snapshot of the whole transaction would not show all of them.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = 'stepwell: emit and send need a transaction at read committed: use another connection, or another job';
  end if;
  if name is null or length(name) not between 1 and 200 then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: a name must have 1 to 200 characters';
  end if;
  -- Not locked: who sends in a long transaction must not hold up the job's worker. What becomes of it if the job ends
  -- before this is committed is seen to then, by stepwell.deliver_events.
  perform from stepwell.job j where j.id = send.job_id;
  if not found then
    return false;
  end if;
  perform stepwell.check_value(value);
  insert into stepwell.event (emitted_at, expires_at, job_id, name, key, value)
  values (_now, 'infinity', send.job_id, send.name, '', send.value);
  return true;
end
$$;
-- Give running jobs back without counting the attempt: now (delay 0, in their old place) or after a delay.
-- Clean shutdowns, prefetched jobs that never started and handlers that raise Snooze all end here.
-- Returns the ids that were refused by the fence.
create or replace function stepwell.snooze(_ids uuid[], _epochs integer[], _delays double precision[]) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
-- As in stepwell.finish.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '256MB'
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _cancelling uuid[];
  _queues text[];
  _due_in double precision;
begin
  perform stepwell.lock_to_give_back(_ids);
  with outcome as (
    select u.id, u.epoch, u.delay from unnest(_ids, _epochs, _delays) as u (id, epoch, delay) order by u.id
  ), given as (
    update stepwell.job j
    set state = case when o.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = case when o.delay > 0 then _now + o.delay * interval '1 second' else j.run_at end,
      attempt = j.attempt - 1, worker_id = null, progress = null
    from outcome o
    where j.id = any (_ids) and j.id = o.id and j.epoch = o.epoch and j.worker_id is not null
    returning j.id, j.queue, j.state, j.run_at, j.cancelling
  )
  select array_agg(g.id), array_agg(g.id) filter (where g.cancelling),
    array_agg(distinct g.queue) filter (where g.state = 'ready'),
    extract(epoch from min(g.run_at) filter (where g.state = 'scheduled') - _now)
  into _accepted, _cancelling, _queues, _due_in
  from given g;
  perform stepwell.notify_ready(_queues, _due_in);
  if _cancelling is not null then
    perform stepwell.cancel(_cancelling);
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (coalesce(_accepted, '{}')));
end
$$;
-- Put the children of running jobs in, each once: the step and the child are written together, under the fence. Options
-- as for enqueue_many. Returns the children's ids in order, also of those that were there before; null where the fence
-- refused.
create or replace function stepwell.spawn(
  _ids uuid[],
  _epochs integer[],
  _keys text[],
  _ns integer[],
  _tasks text[],
  _args text[],
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _now timestamptz := stepwell.now();
  _children uuid[];
  _ready text[];
  _due_in double precision;
begin
  perform stepwell.check_options(
    _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts
  );
  _children := stepwell.uuids7(cardinality(_ids));
  perform from stepwell.job j
  where j.id = any (_ids) and j.worker_id is not null
  order by j.id
  for no key update;
  update stepwell.job j set durable = true where j.id = any (_ids) and j.worker_id is not null and not j.durable;
  with given as materialized (
    select u.id, u.epoch, u.key, u.n, u.child_id, coalesce(u.task, _tasks[1]) as task, u.args,
      coalesce(u.queue, case when cardinality(_queues) = 1 then _queues[1] end, 'default') as queue,
      coalesce(u.priority, case when cardinality(_priorities) = 1 then _priorities[1] end, 0) as priority,
      coalesce(_now + coalesce(u.delay, case when cardinality(_delays) = 1 then _delays[1] end) * interval '1 second',
        u.run_at, case when cardinality(_run_ats) = 1 then _run_ats[1] end, _now) as run_at,
      coalesce(u.metadata, case when cardinality(_metadata) = 1 then _metadata[1] end) as metadata,
      coalesce(u.max_attempts, case when cardinality(_max_attempts) = 1 then _max_attempts[1] end) as max_attempts
    from unnest(_ids, _epochs, _keys, _ns, _children, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata,
      _max_attempts) as u (id, epoch, key, n, child_id, task, args, queue, priority, delay, run_at, metadata, max_attempts)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
  ), saved as (
    insert into stepwell.step (job_id, saved_at, child_id, n, epoch, pending, kind, key)
    select g.id, _now, g.child_id, g.n, g.epoch, true, 'child', g.key from given g
    on conflict (job_id, key) do nothing
    returning child_id
  ), put as (
    insert into stepwell.job (id, run_at, enqueued_at, max_attempts, rank, state, task, queue, args, metadata, parent_id,
      parent_key)
    select g.child_id, g.run_at, _now, g.max_attempts, -g.priority,
      case when g.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      g.task, g.queue, g.args::json, g.metadata::jsonb, g.id, g.key
    from given g
    join saved s on s.child_id = g.child_id
    returning queue, state, run_at
  )
  select array_agg(distinct p.queue) filter (where p.state = 'ready'),
    extract(epoch from min(p.run_at) filter (where p.state = 'scheduled') - _now)
  into _ready, _due_in
  from put p;
  perform stepwell.notify_ready(_ready, _due_in);
  return array(
    select s.child_id
    from unnest(_ids, _epochs, _keys) with ordinality as u (id, epoch, key, place)
    left join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    left join stepwell.step s on s.job_id = j.id and s.key = u.key
    order by u.place
  );
end
$$;
-- Whether a step was saved. Waits for whoever is about to save one of that job, so after a commit in doubt the answer is
-- final. Null: the job is no longer that run's.
create or replace function stepwell.step_saved(_id uuid, _epoch integer, _key text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
  if not stepwell.still_held(_id, _epoch) then
    return null;
  end if;
  return exists (select from stepwell.step s where s.job_id = _id and s.key = _key);
end
$$;
-- Whether a run still holds its job. Waits for whoever is about to finish it, so after a commit in doubt the answer
-- is final: false means that it was committed, or that the job went to somebody else.
create or replace function stepwell.still_held(_id uuid, _epoch integer) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
  perform from stepwell.job j where j.id = _id and j.epoch = _epoch and j.worker_id is not null for no key update;
  return found;
end
$$;
-- Ask workers to drain and stop: those that claim from a queue, that know a task, one, or all; those, that is, which have
-- started by now. Returns how many there are.
create or replace function stepwell.stop(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _scope text;
  _name text;
  _told integer;
begin
  select c.scope, c.name into _scope, _name from stepwell.control_scope(_queue, _task, _worker, _everything) c;
  insert into stepwell.control as c (action, scope, name, asked_at, up_to)
  values ('stop', _scope, _name, _now, coalesce(pg_sequence_last_value('stepwell.worker_number_seq'), 0))
  on conflict on constraint control_pkey do update set asked_at = excluded.asked_at, up_to = excluded.up_to;
  -- They matter only to workers that had started before, and those leave; what is this old was obeyed.
  delete from stepwell.control c where c.action = 'stop' and c.asked_at < _now - interval '30 days';
  perform pg_notify('stepwell_control', '');
  select count(*) into _told from stepwell.worker w join stepwell.stopping_workers s on s.id = w.id
  where w.lease_until > _now and s.scope = _scope and s.name = _name;
  return _told;
end
$$;
-- Give running jobs back until something that they wait for has come; the attempt does not count. What each waits for is
-- {"steps": [...], "groups": [["key", ...], ...], "at_once": false}: steps to save first, and groups of steps. It goes on
-- when all of one group have ended; at_once: now. Returns the ids that were refused by the fence.
create or replace function stepwell.suspend(_ids uuid[], _epochs integer[], _waits text[]) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
-- Ten thousand children of one parent are joined by a hash, whatever their number was when the plan was made.
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _held uuid[];
  _at_once uuid[];
  _events boolean;
  _cancelling uuid[];
  _queues text[];
  _due_in double precision;
begin
  perform stepwell.lock_to_give_back(_ids);
  _held := array(
    select j.id
    from unnest(_ids, _epochs) as u (id, epoch)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
  );
  with given as materialized (
    select u.id, u.epoch, s.key, s.n, s.kind, s.value, s.error, s.delay, s.until, s.event, s.event_key, s.seconds, s.fingerprint,
      coalesce(s.pending, false) as pending
    from unnest(_ids, _epochs, _waits) as u (id, epoch, wait)
    cross join lateral json_to_recordset(u.wait::json -> 'steps') as s (
      key text, n integer, kind text, value json, error json, delay double precision, until double precision,
      event text, event_key text, seconds double precision, fingerprint integer, pending boolean
    )
    where u.id = any (_held)
  ), saved as (
    insert into stepwell.step (job_id, saved_at, until, seconds, n, epoch, fingerprint, pending, kind, key, event,
      event_key, value, error)
    select g.id, _now,
      coalesce(
        _now + g.delay * interval '1 second',
        -- So much earlier or later than that no timestamp is. Both pass over null, which must stay so.
        case when g.until is not null then to_timestamp(greatest(-1e11, least(g.until, 2e11))) end
      ),
      g.seconds, g.n, g.epoch, g.fingerprint,
      g.pending, g.kind, g.key, g.event, g.event_key, g.value, g.error
    from given g
    on conflict (job_id, key) do nothing
  )
  select coalesce(bool_or(g.event is not null), false) into _events from given g;
  -- What was waited for before may be so no longer.
  update stepwell.step s set awaited = null where s.job_id = any (_held) and s.pending and s.awaited is not null;
  with wanted as materialized (
    select u.id, g.n, k.key
    from unnest(_ids, _waits) as u (id, wait)
    cross join lateral json_array_elements(u.wait::json -> 'groups') with ordinality as g (keys, n)
    cross join lateral json_array_elements_text(g.keys) as k (key)
    where u.id = any (_held)
  )
  update stepwell.step s
  set awaited = w.n
  from wanted w
  where s.job_id = any (_held) and s.job_id = w.id and s.key = w.key;
  _at_once := array(
    select u.id from unnest(_ids, _waits) as u (id, wait) where (u.wait::json ->> 'at_once')::boolean
  );
  if _events or exists (
    select from stepwell.step s where s.job_id = any (_held) and s.pending and s.event is not null
  ) then
    _at_once := _at_once || stepwell.take_events(_held, false);
  end if;
  -- After the events: one that was there before a wait that waits for no time at all is taken.
  perform stepwell.end_waits(_held);
  with given as materialized (
    select u.id, json_array_length(u.wait::json -> 'groups') as awaits
    from unnest(_ids, _waits) as u (id, wait)
    where u.id = any (_held)
  ), decided as materialized (
    select g.id, g.awaits,
      g.id = any (_at_once) or g.awaits > (
        select count(distinct s.awaited) from stepwell.step s where s.job_id = g.id and s.pending
      ) as goes_on,
      (
        select min(s.until) from stepwell.step s where s.job_id = g.id and s.pending and s.awaited is not null
      ) as until
    from given g
  ), suspended as (
    update stepwell.job j
    set state = case when d.goes_on then 'ready'::stepwell.state else 'waiting'::stepwell.state end,
      run_at = case when d.goes_on then _now else coalesce(d.until, 'infinity') end,
      attempt = j.attempt - 1, worker_id = null, durable = true, awaits = d.awaits
    from decided d
    where j.id = any (_held) and j.id = d.id
    returning j.id, j.queue, j.state, j.run_at, j.cancelling
  )
  select array_agg(s.id) filter (where s.cancelling), array_agg(distinct s.queue) filter (where s.state = 'ready'),
    extract(epoch from min(s.run_at) filter (where s.state = 'waiting' and s.run_at < 'infinity') - _now)
  into _cancelling, _queues, _due_in
  from suspended s;
  perform stepwell.notify_ready(_queues, _due_in);
  if _cancelling is not null then
    perform stepwell.cancel(_cancelling);
  end if;
  return array(select i.id from unnest(_ids) as i (id) where i.id <> all (_held));
end
$$;
-- Give the waits of these jobs the events that came before them: each the oldest that its job has not taken yet. The jobs
-- are locked by the caller. Returns those for which an event may be on its way at this moment, in a transaction that
-- is about to commit: they must look again. _emitting: the caller is such a transaction, and holds the lock shared.
create or replace function stepwell.take_events(_job_ids uuid[], _emitting boolean) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _wait record;
  _event record;
  _unsure uuid[] := '{}';
begin
  for _wait in
    select s.job_id, s.key, s.kind, s.event, s.event_key, s.until
    from stepwell.step s
    where s.job_id = any (_job_ids) and s.pending and s.event is not null and s.awaited is not null
    order by s.job_id, s.n
  loop
    if not _emitting and not pg_try_advisory_xact_lock(1937007984, hashtext(
      _wait.event || chr(1) || case when _wait.kind = 'receive' then _wait.job_id::text else _wait.event_key end
    )) then
      _unsure := _unsure || _wait.job_id;
      continue;
    end if;
    if _wait.kind = 'receive' then
      delete from stepwell.event e
      where e.id = (
        select f.id from stepwell.event f
        where f.job_id = _wait.job_id and f.name = _wait.event
          -- What comes later than the limit comes too late.
          and (_wait.until is null or f.emitted_at <= _wait.until)
        order by f.id limit 1
      )
      returning e.id, e.value into _event;
    else
      select e.id, e.value into _event
      from stepwell.event e
      where e.job_id is null and e.name = _wait.event and e.key = _wait.event_key
        and (_wait.until is null or e.emitted_at <= _wait.until)
        and (e.expires_at > _now or e.transaction = pg_current_xact_id())
        and not exists (select from stepwell.step t where t.job_id = _wait.job_id and t.event_id = e.id)
      order by e.id
      limit 1;
    end if;
    continue when _event.id is null;
    update stepwell.step s
    set pending = false, event_id = _event.id, value = _event.value, saved_at = _now
    where s.job_id = _wait.job_id and s.key = _wait.key;
  end loop;
  return _unsure;
end
$$;
-- Fire schedules that are due, each by itself: one that cannot be fired now does not hold up the others.
-- _dues[k] and _versions[k] say what the caller saw of _ids[k]; if somebody else has fired or changed it since, nothing is
-- done. (_tick_ids, _tick_ats) are the ticks that were reckoned, _nexts[k] the one to come. Returns how many jobs were
-- enqueued, and which schedules could not be fired, and why: null if somebody holds them. Nobody is waited for.
create or replace function stepwell.tick(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[],
  _tick_ids uuid[],
  _tick_ats timestamptz[],
  out enqueued integer,
  out left_ids uuid[],
  out left_why text[]
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
  _replacing uuid[];
  _k integer;
begin
  enqueued := 0;
  left_ids := '{}';
  left_why := '{}';
  -- Runs that end lock their jobs first and then their schedules, many at a time (finish, admit): so does this, or they
  -- would wait for each other.
  _replacing := array(
    select s.id from unnest(_ids, _dues) as u (id, due)
    join stepwell.schedule s on s.id = u.id and s.next_tick_at = u.due
    where s.overlap = 'replace'
  );
  perform from stepwell.job j where j.schedule_id = any (_replacing) order by j.id for update skip locked;
  for _k in select u.k from unnest(_ids) with ordinality as u (id, k) order by u.id loop
    begin
      enqueued := enqueued + stepwell.tick_one(
        _ids[_k], _versions[_k], _dues[_k], _nexts[_k],
        array(select t.at from unnest(_tick_ids, _tick_ats) as t (id, at) where t.id = _ids[_k] order by t.at)
      );
    exception
      when lock_not_available then
        left_ids := left_ids || _ids[_k];
        left_why := left_why || null::text;
      when others then
        left_ids := left_ids || _ids[_k];
        left_why := left_why || sqlerrm;
    end;
  end loop;
end
$$;
-- Fire one schedule for the given ticks, oldest first, and set its next. Returns how many jobs were enqueued. What
-- somebody holds raises lock_not_available at once.
create or replace function stepwell.tick_one(
  _id uuid,
  _version integer,
  _due timestamptz,
  _next timestamptz,
  _ticks timestamptz[]
) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _replaces boolean;
  _schedule stepwell.schedule;
  _live uuid[];
  _at timestamptz;
  _job_id uuid;
  _run_at timestamptz;
  _state stepwell.state;
  _enqueued integer := 0;
begin
  -- What somebody else has seen to is left without a lock: its runs may be ending by now, and would wait for it.
  select s.overlap = 'replace' into _replaces from stepwell.schedule s
  where s.id = _id and s.version = _version and s.next_tick_at = _due and s.next_tick_at <= _now;
  if not found then
    return 0;
  end if;
  -- A run that ends locks its job first and its schedule then (finish, admit): so does this.
  if _replaces then
    perform from stepwell.job j where j.schedule_id = _id order by j.id for update nowait;
  end if;
  select s.* into _schedule from stepwell.schedule s
  where s.id = _id and s.version = _version and s.next_tick_at = _due and s.next_tick_at <= _now
  for update nowait;
  if not found then
    return 0;
  end if;
  -- Reckoned long ago, by a worker that was stopped since: much may have been missed by now, and what of it is run must be
  -- decided for all of it together. The caller looks again.
  if _next < _now - interval '5 seconds' then
    return 0;
  end if;
  _live := array(select j.id from stepwell.job j where j.schedule_id = _id);

  foreach _at in array _ticks loop
    -- Whatever the caller reckoned: never early.
    continue when _at < _due or _at > _now;
    _job_id := stepwell.uuid7();
    insert into stepwell.tick as t (schedule_id, at, handled_at, job_id, skipped)
    select _id, _at, _now, case when w.skipped is null then _job_id end, w.skipped
    from (
      select case
        when _schedule.catchup = 0 and _at < _now - interval '1 minute' then 'missed'
        when _schedule.overlap = 'skip' and cardinality(_live) > 0 then 'overlap'
        when _schedule.overlap = 'replace' and _at < _ticks[cardinality(_ticks)] then 'overlap'
      end as skipped
    ) w
    on conflict on constraint tick_pkey do nothing
    returning t.job_id into _job_id;
    continue when _job_id is null;

    if _schedule.overlap = 'replace' then
      perform stepwell.cancel(_live, format('replaced by the run for %s', _at));
    end if;
    _run_at := _at;
    if _schedule.jitter > 0 then
      _run_at := _at + random() * _schedule.jitter * interval '1 second';
    end if;
    -- Ticks that were missed together are run one after the other, too.
    _state := case
      when _schedule.overlap <> 'allow' and exists (select from stepwell.job j where j.schedule_id = _id) then 'blocked'
      when _run_at > _now then 'scheduled'
      else 'ready'
    end;
    insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args, schedule_id, scheduled_for)
    values (_job_id, _run_at, _now, _schedule.rank, _state, _schedule.task, _schedule.queue, _schedule.args, _id, _at);
    if _state <> 'blocked' then
      perform stepwell.notify_ready(
        case when _state = 'ready' then array[_schedule.queue] end,
        case when _state = 'scheduled' then extract(epoch from _run_at - _now)::double precision end
      );
    end if;
    _enqueued := _enqueued + 1;
    _schedule.last_tick_at := _at;
    _schedule.last_job_id := _job_id;
  end loop;

  update stepwell.schedule s
  set next_tick_at = _next, last_tick_at = _schedule.last_tick_at, last_job_id = _schedule.last_job_id
  where s.id = _id;
  return _enqueued;
end
$$;
-- The saved steps of a job as one value, as its history keeps them. stepwell.finish has the same within its statement.
create or replace function stepwell.timeline(_job_id uuid) returns json
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select json_agg(f.folded order by f.n) from stepwell.folded_steps f where f.job_id = _job_id);
end
$$;
-- Enqueue a run of a schedule now, out of turn and whatever else runs; returns its id, null: there is no such schedule.
create or replace function stepwell.trigger_schedule(_owner text, _name text) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _at timestamptz;
  _schedule stepwell.schedule;
  _job_id uuid := stepwell.uuid7();
begin
  select s.* into _schedule from stepwell.schedule s where s.owner = _owner and s.name = _name for update;
  if not found then
    return null;
  end if;
  -- Out of turn: it takes no tick's place, nor that of a run that was triggered at the same time.
  _at := case when _schedule.next_tick_at = _now then _now + interval '1 microsecond' else _now end;
  loop
    insert into stepwell.tick (schedule_id, at, handled_at, job_id, triggered) values (_schedule.id, _at, _now, _job_id, true)
    on conflict on constraint tick_pkey do nothing;
    exit when found;
    _at := _at + interval '1 microsecond';
  end loop;
  insert into stepwell.job (id, run_at, enqueued_at, rank, state, task, queue, args, schedule_id, scheduled_for)
  values (_job_id, _now, _now, _schedule.rank, 'ready', _schedule.task, _schedule.queue, _schedule.args, _schedule.id, _at);
  update stepwell.schedule s set last_tick_at = _at, last_job_id = _job_id where s.id = _schedule.id;
  perform stepwell.notify_ready(array[_schedule.queue], null);
  return _job_id;
end
$$;
-- The steps that a timeline tells of, as rows.
create or replace function stepwell.unfold(_steps json) returns table (
  key text,
  n integer,
  kind text,
  epoch integer,
  saved_at timestamptz,
  seconds double precision,
  pending boolean,
  timed_out boolean,
  undo boolean,
  large boolean,
  until timestamptz,
  fingerprint integer,
  child_id uuid,
  event text,
  event_key text,
  event_id bigint,
  value json,
  error json
)
language sql stable
as $$
  select e.step ->> 0, (e.step ->> 1)::integer, e.step ->> 2, (e.step ->> 3)::integer,
    to_timestamp((e.step ->> 4)::double precision), (e.step ->> 5)::double precision,
    coalesce((e.step -> 8 ->> 'pending')::boolean, false), coalesce((e.step -> 8 ->> 'timed_out')::boolean, false),
    coalesce((e.step -> 8 ->> 'undo')::boolean, false), coalesce((e.step -> 8 ->> 'large')::boolean, false),
    (e.step -> 8 ->> 'until')::timestamptz, (e.step ->> 6)::integer, (e.step -> 8 ->> 'child_id')::uuid,
    e.step -> 8 ->> 'event', e.step -> 8 ->> 'event_key', (e.step -> 8 ->> 'event_id')::bigint,
    -- What was not set comes back as SQL's null, not JSON's.
    case when json_typeof(e.step -> 7) <> 'null' then e.step -> 7 end,
    case when json_typeof(e.step -> 8 -> 'error') <> 'null' then e.step -> 8 -> 'error' end
  from json_array_elements(_steps) as e (step)
$$;
-- A worker leaves. What it still holds, should there be anything, is failed as a dead worker's would be.
create or replace function stepwell.unregister_worker(_worker_id uuid) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _tasks jsonb;
begin
  update stepwell.worker w set lease_until = 'epoch' where w.id = _worker_id returning w.tasks into _tasks;
  return stepwell.remove_worker(
    _worker_id, format('worker %s stopped while it held this job', _worker_id), coalesce(_tasks, '{}')
  );
end
$$;
-- A version 7 uuid: 48 bits of milliseconds, then 12 bits of the fraction below, so that ids grow with time.
-- Postgres 18 has its own. Before, it is one expression, so that it is inlined where it is used.
do $do$
begin
  if current_setting('server_version_num')::integer >= 180000 then
    execute $f$
      create or replace function stepwell.uuid7() returns uuid
      language sql volatile parallel safe
      as 'select pg_catalog.uuidv7()'
    $f$;
  else
    execute $f$
      create or replace function stepwell.uuid7() returns uuid
      language sql volatile parallel safe
      as $$
        select (
          overlay(
            lpad(to_hex((extract(epoch from clock_timestamp()) * 4096000)::bigint), 15, '0') placing '7' from 13 for 0
          ) || substr(gen_random_uuid()::text, 20)
        )::uuid
      $$
    $f$;
  end if;
end
$do$;
-- So many version 7 uuids, each greater than the one before. Chance is asked once and the rest counts up from there:
-- to ask for each costs more than all else there is to an enqueue.
create or replace function stepwell.uuids7(_count integer) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  _first text := stepwell.uuid7();
  -- Of the last 48 bits the highest is cleared, so that counting up never runs over.
  _low bigint := ('x' || right(_first, 12))::bit(48)::bigint & 140737488355327;
  _head text := left(_first, 24);
begin
  return array(
    select (_head || lpad(to_hex(_low + n), 12, '0'))::uuid from generate_series(0, _count - 1) as n order by n
  );
end
$$;
-- Let jobs that wait go on, where a group of steps that they wait for is complete. The jobs are locked by the caller.
create or replace function stepwell.wake(_job_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _queues text[];
begin
  with woken as (
    update stepwell.job j
    set state = 'ready', run_at = _now
    -- As text, because the state itself would tempt the planner to the index on all that is due.
    where j.id = any (_job_ids) and j.state::text = 'waiting'
      and case
        when j.awaits = 1 then not exists (
          select from stepwell.step s where s.job_id = j.id and s.pending and s.awaited is not null
        )
        else j.awaits > (
          select count(distinct s.awaited) from stepwell.step s where s.job_id = j.id and s.pending
        )
      end
    returning j.queue
  )
  select array_agg(distinct w.queue) into _queues from woken w;
  perform stepwell.notify_ready(_queues, null);
end
$$;
-- What was asked of the fleet.
create or replace view stepwell.controls as
select c.action, c.scope, c.name, c.asked_at from stepwell.control c;

comment on view stepwell.controls is 'What is paused, and what was asked to stop.';
-- Failed attempts, for people and programs that look.
create or replace view stepwell.failures as
select f.job_id, f.epoch, f.attempt, f.reason, f.type, f.message, f.traceback, f.worker_id, f.claimed_at, f.failed_at,
  f.expires_at
from stepwell.failure f;

comment on view stepwell.failures is 'Every attempt that did not succeed and is kept.';
-- Saved steps as history keeps them: [key, n, kind, epoch, saved_at, seconds, fingerprint, value, more]. Most have no more than
-- that, and every one passes here when its job ends: so it is short.
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

comment on view stepwell.folded_steps is 'For the functions that end jobs: each saved step as it is kept in history, and read from there by stepwell.unfold.';
-- All jobs, live and finished, for people and programs that look: the readable face of the private tables.
create or replace view stepwell.jobs as
select j.id, j.state, j.task, j.queue, -j.rank::integer as priority, j.args, j.metadata, null::json as result,
  j.reason as error, j.progress, j.epoch, j.attempt, j.max_attempts, j.cancelling, j.worker_id, j.enqueued_at,
  j.run_at, j.claimed_at, null::timestamptz as finished_at, null::timestamptz as expires_at, j.schedule_id,
  j.scheduled_for, j.cursor, j.parent_id, j.forked_from, j.undoing is not null as undoing
from stepwell.job j
union all
select h.id, h.state, h.task, h.queue, -h.rank::integer, h.args, h.metadata, h.result,
  h.error, null::json, h.epoch, h.attempt, h.max_attempts, false, h.worker_id, h.enqueued_at,
  h.run_at, h.claimed_at, h.finished_at, h.expires_at, h.schedule_id, h.scheduled_for, h.cursor, h.parent_id,
  h.forked_from, false
from stepwell.history h;

comment on view stepwell.jobs is 'Every job that is kept, in any state.';
-- The queues that hold live jobs or are paused, with what stands in them.
create or replace view stepwell.queues as
select coalesce(c.queue, p.name) as name, p.asked_at as paused_at,
  coalesce(c.ready, 0) as ready, coalesce(c.scheduled, 0) as scheduled, coalesce(c.running, 0) as running,
  coalesce(c.waiting, 0) as waiting, coalesce(c.blocked, 0) as blocked, c.oldest_ready_at
from (
  select j.queue,
    count(*) filter (where j.state = 'ready') as ready,
    count(*) filter (where j.state = 'scheduled') as scheduled,
    count(*) filter (where j.state = 'running') as running,
    count(*) filter (where j.state = 'waiting') as waiting,
    count(*) filter (where j.state = 'blocked') as blocked,
    min(j.run_at) filter (where j.state = 'ready') as oldest_ready_at
  from stepwell.job j
  group by j.queue
) c
full join (
  select p.name, p.asked_at from stepwell.control p where p.action = 'pause' and p.scope = 'queue'
) p on p.name = c.queue;

comment on view stepwell.queues is 'Live jobs counted by queue and state.';
-- Schedules with their next and last runs.
create or replace view stepwell.schedules as
select s.id, s.owner, s.name, s.task, s.args, s.queue, -s.rank::integer as priority, s.cron, s.tz, s.every, s.overlap,
  s.catchup, s.jitter, s.declared, s.version, s.created_at, s.paused_at, s.next_tick_at as next_run_at,
  s.last_tick_at as last_run_at, s.last_job_id,
  (select count(*) from stepwell.job j where j.schedule_id = s.id) as live
from stepwell.schedule s;

comment on view stepwell.schedules is 'What is enqueued by cron or at an interval; live: how many of its runs have not ended.';
-- How runs ended, by the minute.
create or replace view stepwell.stats as
select s.minute, s.task, s.queue, s.succeeded, s.failed, s.cancelled, s.handed_back, s.seconds from stepwell.stat s;

comment on view stepwell.stats is 'How runs ended, counted by the minute, for a week.';
-- What jobs have saved, live and finished.
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
where h.steps is not null and u.kind <> 'taken';

comment on view stepwell.steps is 'The saved steps of every job that is kept. The value of a large one is read by stepwell.large_value.';
-- The workers that were asked to stop since they started, once for each time. A queue's name may be covered by a pattern.
create or replace view stepwell.stopping_workers as
select w.id, c.scope, c.name
from stepwell.worker w
join stepwell.control c on c.action = 'stop' and c.up_to >= coalesce(w.begun, w.number)
  and case c.scope
    when 'queue' then exists (
      select from unnest(w.queues) as q (name)
      where q.name = c.name or (right(q.name, 1) = '*' and starts_with(c.name, left(q.name, -1)))
    )
    when 'task' then w.tasks ? c.name
    when 'worker' then w.id::text = c.name
    else true
  end;

comment on view stepwell.stopping_workers is 'Workers that were asked to drain and stop.';
-- What became of the newest ticks of each schedule.
create or replace view stepwell.ticks as
select t.schedule_id, s.owner, s.name, t.at, t.handled_at, t.job_id, t.skipped, t.triggered
from stepwell.tick t join stepwell.schedule s on s.id = t.schedule_id;

comment on view stepwell.ticks is 'The newest ticks of each schedule, with the job of each or why there is none.';
-- The workers that are registered, with what they run.
create or replace view stepwell.workers as
select w.id, w.host, w.pid, w.version, w.queues, array(select jsonb_object_keys(w.tasks) order by 1) as tasks,
  w.concurrency, w.running, w.started_at, w.renewed_at, w.lease_until, w.lease_until > stepwell.now() as alive,
  w.owner, l.worker_id is not null as leads,
  exists (
    select from stepwell.control p
    where p.action = 'pause' and (p.scope = 'everything' or (p.scope = 'worker' and p.name = w.id::text))
  ) as paused, exists (select from stepwell.stopping_workers s where s.id = w.id) as stopping
from stepwell.worker w
left join stepwell.leader l on l.worker_id = w.id and l.lease_until > stepwell.now();

comment on view stepwell.workers is 'Registered workers; alive: the lease holds.';

do $$
declare
  _stale regprocedure;
begin
  for _stale in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'stepwell'::regnamespace
      and p.oid || ' ' || p.ctid::text = any (string_to_array(current_setting('stepwell.functions'), ';'))
  loop
    execute format('drop function %s', _stale);
  end loop;
end
$$;
-- Runs after functions and views. A function is for those it is granted to; docs/operations.md shows the grants for a
-- role that only enqueues and for one that runs workers.
revoke all on all functions in schema stepwell from public;
grant execute on function stepwell.schema_version(), stepwell.now(), stepwell.unfold(json) to public;
select stepwell.make_partitions('{604800, 2592000}');
commit;
