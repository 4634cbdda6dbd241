-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

create type stepwell.place as (
  queue text,
  rank smallint,
  run_at timestamptz
);
comment on type stepwell.place is 'Where in the order of claims a job stands: what the workers are told when it becomes ready.';
comment on column stepwell.place.queue is 'The queue of the job.';
comment on column stepwell.place.rank is 'Minus the priority.';
comment on column stepwell.place.run_at is 'Among jobs of one rank, the earliest goes first.';

-- Its parameters or result have changed.
drop function if exists stepwell.notify_ready(text[], double precision);
drop function if exists stepwell.promote_one(uuid);

-- The options of a task.

comment on column stepwell.worker.tasks is 'The tasks it registered, each with the limits that rescue needs and the options of jobs that name none: {"max_attempts", "keep_failed", "queue", "priority"}. Workers of schema 6 register the limits only.';
create index worker_number on stepwell.worker (number);
comment on index stepwell.worker_number is 'Finds the worker that registered last of those that know a task.';
-- Its args may be jsonb, too.
drop function if exists stepwell.enqueue(text, json, text, integer, interval, timestamptz, jsonb, integer, text);
-- It has another parameter now.
drop function if exists stepwell.retry(uuid[], text, boolean);
-- They return the jobs now, and which of them have failed for good.
drop function if exists stepwell.fail_held(uuid, text, jsonb);
drop function if exists stepwell.remove_worker(uuid, text, jsonb);

-- Jobs with a policy of their own.

alter table stepwell.job add column policy json;
comment on column stepwell.job.policy is 'How this job is tried, timed and kept, where that differs from its task: {"retry", "timeout", "keep", "keep_failed"}, lengths in seconds. Null: as its task.';
alter table stepwell.history add column policy json;
comment on column stepwell.history.policy is 'As on the job.';
alter table stepwell.schedule
  add column metadata jsonb,
  add column max_attempts integer,
  add column policy json,
  add constraint schedule_max_attempts check (max_attempts between 1 and 1000000);
comment on column stepwell.schedule.metadata is 'The metadata of its jobs.';
comment on column stepwell.schedule.max_attempts is 'How often each of its jobs may be tried; null: the task decides.';
comment on column stepwell.schedule.policy is 'The policy of its jobs.';
-- They have more parameters now.
drop function if exists stepwell.enqueue_many(
  text[], text[], text[], integer[], double precision[], timestamptz[], text[], integer[], text[]
);
drop function if exists stepwell.spawn(
  uuid[], integer[], text[], integer[], text[], text[], text[], integer[], double precision[], timestamptz[], text[],
  integer[], text[]
);
drop function if exists stepwell.put_schedules(
  text, boolean, text[], text[], text[], text[], integer[], text[], text[], double precision[], text[], integer[],
  double precision[], timestamptz[], boolean
);
drop function if exists stepwell.advance(
  uuid[], integer[], text[], text[], text[], integer[], double precision[], text[]
);
