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
