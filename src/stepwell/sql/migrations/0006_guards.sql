-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.
-- What is there was delivered when it was committed; the default is for what comes.
alter table stepwell.event add column delivered boolean not null default true;
alter table stepwell.event alter column delivered set default false;
comment on column stepwell.event.delivered is 'Another event of its transaction has brought this one to the jobs that wait for it.';
create index event_transaction on stepwell.event (transaction, id);
comment on index stepwell.event_transaction is 'Finds what else a transaction has emitted.';

-- Leases and outcomes.

-- Schedules.

-- A run that ends asks whether another one goes, and which one waits first. One index answers both with one probe each;
-- jobs of no schedule are not in it, as before.
drop index stepwell.job_schedule;
create index job_schedule on stepwell.job ((state = 'blocked'), schedule_id, scheduled_for, id) where schedule_id is not null;
comment on index stepwell.job_schedule is
  'Finds the live runs of a schedule: first those that are not blocked, then the blocked ones in the order in which they go.';

-- Lives and attempts of a job.

-- Owners, and jobs whose arguments do not fit.
alter table stepwell.job add column owner text;
comment on column stepwell.job.owner is 'The app whose workers run it; null: any worker that knows the task.';
alter table stepwell.history add column owner text;
comment on column stepwell.history.owner is 'As on the job.';
alter table stepwell.worker add column named boolean;
comment on column stepwell.worker.named is 'Its app was given its name: it also claims the jobs of that owner. Null: it is of a version that claims the jobs of every owner.';
alter table stepwell.schedule add column named boolean not null default false;
comment on column stepwell.schedule.named is 'Its app was given its name: its jobs belong to that owner.';
-- They have more parameters now.
drop function if exists stepwell.enqueue(text, json, text, integer, interval, timestamptz, jsonb, integer);
drop function if exists stepwell.enqueue_many(
  text[], text[], text[], integer[], double precision[], timestamptz[], text[], integer[]
);
drop function if exists stepwell.spawn(
  uuid[], integer[], text[], integer[], text[], text[], text[], integer[], double precision[], timestamptz[], text[],
  integer[]
);
drop function if exists stepwell.register_worker(
  text, integer, text, text[], text, integer, double precision, double precision, integer, text, text[], double precision
);
drop function if exists stepwell.put_schedules(
  text, boolean, text[], text[], text[], text[], integer[], text[], text[], double precision[], text[], integer[],
  double precision[], timestamptz[]
);

-- Counters.
