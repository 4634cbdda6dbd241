-- stepwell: compatible from 6
-- Admission: unique keys, limits by key, rates and fairness. A job that uses none of them has null in each of these
-- columns and pays for nothing.

-- What the task or the caller asked for, as stepwell.values.admission in Python writes it. Callers pass it as a member
-- of the policy, and stepwell.insert_jobs stores it apart, so that jobs with many keys share few policies.
alter table stepwell.job add column admission json;
-- The key of the limit or rate in whose line the job stands, if one blocks it.
alter table stepwell.job add column blocked_by text;
-- The key by which the job takes turns with other jobs of its queue.
alter table stepwell.job add column fair text;
-- A retry takes the unique key again, and queues for its limits again.
alter table stepwell.history add column admission json;

create index job_blocked on stepwell.job (blocked_by, rank, run_at, id) where blocked_by is not null;
create index job_turn on stepwell.job (queue, rank, run_at) where fair is not null and state in ('ready', 'blocked');
create index job_fair on stepwell.job (queue, rank, fair, run_at)
  where fair is not null and state in ('ready', 'blocked');

-- A job that has been admitted: one row for each of its limits until it ends or is handed back, and one for each of
-- its rates until it is claimed. The rows are what is counted, so a crash cannot lose a place.
create table stepwell.permit (
  key text not null,
  job_id uuid not null,
  rate boolean not null,
  hold boolean not null,
  primary key (key, rate, job_id)
);
create index permit_job on stepwell.permit (job_id);
alter table stepwell.permit set (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- The token bucket of a rate: how many tokens were missing at what time, and when the jobs in its line can be admitted.
create table stepwell.bucket (
  key text primary key,
  used double precision not null,
  used_at timestamptz not null,
  closed_until timestamptz,
  next_at timestamptz
)
with (fillfactor = 50);
create index bucket_next on stepwell.bucket (next_at) where next_at is not null;

-- The locks of keys (stripes 0 to 255) and of queues with a limit (256 to 511). Not advisory locks, which any role could
-- hold.
create table stepwell.key_lock (stripe smallint primary key);
insert into stepwell.key_lock (stripe) select generate_series(0, 511);

-- Limits and rates that a person has set at run time, in place of those in the code.
create table stepwell.key_setting (
  key text primary key check (length(key) between 1 and 200),
  most integer check (most between 0 and 1000000),
  spacing double precision check (spacing > 0),
  burst integer check (burst between 1 and 1000000),
  set_at timestamptz not null
);

-- The limit and rate that a person has set for a queue at run time: how many of its jobs run at once, and how many start
-- in a time. Jobs that are claimed from such a queue have a permit for it, under the key stepwell.queue_key, until they
-- end or are handed back, and take a token from the bucket of that key.
create table stepwell.queue_setting (
  name text primary key check (length(name) between 1 and 200),
  most integer check (most between 0 and 1000000),
  spacing double precision check (spacing > 0),
  burst integer check (burst between 1 and 1000000),
  set_at timestamptz not null,
  seen_at timestamptz,
  all_counted boolean not null default false
);

-- How far the turns of a queue and rank have come: a job whose fair key has no other waiting job begins here.
create table stepwell.turn_clock (
  queue text not null,
  rank smallint not null,
  turn timestamptz not null,
  moved_at timestamptz not null,
  primary key (queue, rank)
)
with (fillfactor = 50);

-- The part of a new job that depends on its admission, for stepwell.insert_jobs.
create type stepwell.line as (admission json, blocked_by text, fair text, turn timestamptz);

-- The unique keys that are taken: by a live job, or until a time. The primary key decides between producers, so a key
-- whose transaction rolls back was never taken. Keys are compared byte by byte, and locked in that order.
create table stepwell.unique_key (
  key text collate "C" primary key,
  job_id uuid not null,
  live boolean not null,
  until_start boolean not null,
  expires_at timestamptz
);
create index unique_key_expiry on stepwell.unique_key (expires_at) where not live;
alter table stepwell.unique_key set (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- Groups of jobs. A job that is in no group has null in this column and pays for nothing.
alter table stepwell.job add column group_id uuid;
alter table stepwell.history add column group_id uuid;

-- A group counts its members as they end, and starts its callback when all have ended. The row is updated by each
-- statement that ends members, so its page has room for further versions.
create table stepwell.job_group (
  id uuid primary key,
  created_at timestamptz not null,
  finished_at timestamptz,
  expires_at timestamptz not null default 'infinity',
  keep double precision not null,
  then_id uuid,
  then_task text,
  then_parameter text,
  then_delay double precision,
  then_started boolean not null default false,
  first_id uuid,
  last_id uuid,
  added integer not null default 0,
  total integer,
  succeeded integer not null default 0,
  failed integer not null default 0,
  cancelled integer not null default 0,
  failures jsonb
)
with (fillfactor = 50);
create unique index job_group_then on stepwell.job_group (then_id) where then_id is not null;
create index job_group_expires on stepwell.job_group (expires_at) where finished_at is not null;

-- Counts that could not be added to the row of a group, because another session had locked it, or because the
-- transaction may stay open and must not lock it. stepwell.fold_groups adds them.
create table stepwell.group_tally (
  id bigint generated always as identity primary key,
  group_id uuid not null,
  succeeded integer not null default 0,
  failed integer not null default 0,
  cancelled integer not null default 0,
  changes jsonb
);
create index group_tally_group on stepwell.group_tally (group_id, id);
alter table stepwell.group_tally set (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- How a member of a group ended, from stepwell.to_history to stepwell.count_members.
create type stepwell.member_end as (group_id uuid, id uuid, state stepwell.state, error text);

-- How a job with an admission or a group ended, within stepwell.to_history.
create type stepwell.marked_end as (
  id uuid,
  unique_key text,
  state stepwell.state,
  group_id uuid,
  error text,
  admitted boolean
);

-- It has new columns in its result.
drop function if exists stepwell.to_history(
  uuid[], integer[], stepwell.state[], double precision[], text[], text[], json[], boolean
);
