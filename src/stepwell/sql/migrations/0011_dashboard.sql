-- stepwell: compatible from 6
-- The dashboard. Functions, views and comments are replaced with every migration.

-- Jobs that neither wait for a worker nor run, by state and queue, newest last. A job that is enqueued ready, claimed
-- and finished never enters this index.
create index job_resting on stepwell.job (state, queue, id) where state in ('scheduled', 'waiting', 'blocked');
-- Read for every job that is admitted: to read it from the JSON takes as long as to find the job. Jobs that are not in
-- a line yet keep null, and are admitted by their JSON, which takes longer.
alter table stepwell.job add column lone_limit integer;
update stepwell.job j set lone_limit = (j.admission #>> '{limits,0,most}')::integer
where j.blocked_by is not null and json_array_length(j.admission -> 'limits') = 1 and j.admission -> 'rates' is null
  and (j.admission #>> '{limits,0,hold}')::boolean is not true;
-- Cancelled jobs are few among millions that succeeded.
create index history_cancelled on stepwell.history (id) include (queue, expires_at) where state = 'cancelled';

-- Failures, grouped by their fingerprint. An attempt that failed before this migration has none.
alter table stepwell.failure add column fingerprint uuid;
create index failure_fingerprint on stepwell.failure (fingerprint, job_id) where fingerprint is not null;
create table stepwell.failure_group (
  fingerprint uuid not null,
  task text not null,
  type text not null,
  frame text,
  state text not null default 'open' check (state in ('open', 'resolved', 'ignored')),
  state_at timestamptz,
  reopened integer not null default 0,
  reopened_at timestamptz,
  first_at timestamptz not null,
  last_at timestamptz not null,
  count bigint not null default 0,
  message text not null,
  job_id uuid,
  is_full boolean not null default false,
  constraint failure_group_pkey primary key (fingerprint)
) with (fillfactor = 50);
create index failure_group_task on stepwell.failure_group (task);
create table stepwell.failure_tally (
  id bigint generated always as identity,
  fingerprint uuid not null,
  at timestamptz not null,
  count integer not null,
  task text not null,
  type text not null,
  frame text,
  message text not null,
  job_id uuid,
  constraint failure_tally_pkey primary key (id)
);
create table stepwell.failure_hour (
  fingerprint uuid not null,
  hour timestamptz not null,
  count bigint not null,
  constraint failure_hour_pkey primary key (fingerprint, hour)
);

-- Acts of people: who did what, to what, and how many it changed.
create table stepwell.audit (
  id bigint generated always as identity,
  at timestamptz not null,
  who text not null,
  via text not null,
  role text not null,
  act text not null,
  target text not null,
  count bigint not null,
  bulk uuid,
  constraint audit_pkey primary key (id)
);
create unique index audit_bulk on stepwell.audit (bulk) where bulk is not null;

-- Statistics: enqueued jobs, histograms of waiting and run time, and sums over longer times and over everything.
alter table stepwell.stat
  add column enqueued integer not null default 0,
  add column waits integer[] not null default '{}',
  add column runs integer[] not null default '{}';
create table stepwell.stat_sum (
  minutes integer not null,
  since timestamptz not null,
  task text not null,
  queue text not null,
  enqueued integer not null,
  succeeded integer not null,
  failed integer not null,
  cancelled integer not null,
  ended integer not null,
  seconds double precision not null,
  waits integer[] not null,
  runs integer[] not null,
  constraint stat_sum_pkey primary key (minutes, since, task, queue)
);
create table stepwell.stat_progress (
  single boolean not null default true,
  counted_to uuid,
  minutes_to timestamptz,
  fives_to timestamptz,
  hours_to timestamptz,
  quarters_to timestamptz,
  constraint stat_progress_pkey primary key (single),
  constraint stat_progress_is_one check (single)
);
insert into stepwell.stat_progress default values;
-- A count of failed jobs then reads no rows.
drop index stepwell.history_failed;
create index history_failed on stepwell.history (id) include (queue, expires_at) where state = 'failed';

-- Bulk operations: a change of all jobs that match a filter, worked off in chunks by the workers.
create table stepwell.bulk (
  id uuid primary key,
  act text not null check (act in ('retry', 'cancel', 'run', 'delete', 'move')),
  state text not null default 'running' check (state in ('running', 'done', 'stopped')),
  filter jsonb not null,
  options jsonb not null,
  expected integer check (expected >= 0),
  asked_by text check (length(asked_by) between 1 and 200),
  as_of timestamptz not null,
  started_at timestamptz not null,
  finished_at timestamptz,
  worked_at timestamptz,
  next_at timestamptz not null,
  looked_to uuid,
  looked bigint not null default 0,
  done bigint not null default 0,
  skipped bigint not null default 0,
  failed bigint not null default 0,
  became jsonb not null default '{}',
  error text
);
create index bulk_running on stepwell.bulk (next_at) where state = 'running';

-- Run logs: what handlers of tasks with logs=True have logged, for people who look at a job.
create table stepwell.run_log_head (
  job_id uuid not null,
  last_line integer not null default 0,
  lines integer not null default 0,
  bytes integer not null default 0,
  look_at timestamptz not null,
  constraint run_log_head_pkey primary key (job_id)
) with (fillfactor = 70);
create index run_log_head_look on stepwell.run_log_head (look_at);
create table stepwell.run_log (
  job_id uuid not null,
  line integer not null,
  attempt integer not null,
  at timestamptz not null,
  level smallint not null,
  logger text not null,
  message text not null,
  constraint run_log_pkey primary key (job_id, line)
);

-- Saved views: filters of the list of jobs that somebody has named, for everybody who uses the dashboard.
create table stepwell.saved_view (
  name text not null,
  filters jsonb not null,
  saved_by text not null,
  saved_at timestamptz not null,
  constraint saved_view_pkey primary key (name)
);

-- Live stacks: somebody asks for the stack of a running handler, and its worker answers. The orders of a worker name
-- the requests.
create table stepwell.stack_request (
  id uuid not null,
  job_id uuid not null,
  worker_id uuid not null,
  asked_at timestamptz not null,
  answer text,
  constraint stack_request_pkey primary key (id)
);
create index stack_request_open on stepwell.stack_request (worker_id) where answer is null;
drop function if exists stepwell.renew(uuid, double precision, integer);

-- A count says whether there may be more, instead of by its sign.
drop function if exists stepwell.count_state(stepwell.state, text, integer);

-- The part of a token by which a smooth rate makes up for late claims.
alter table stepwell.key_setting add column late double precision check (late between 0 and 1);
alter table stepwell.queue_setting add column late double precision check (late between 0 and 1);
