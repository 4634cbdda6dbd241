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
