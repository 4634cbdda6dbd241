-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

-- Jobs with a policy of their own.

alter table stepwell.job add column options json;
comment on column stepwell.job.options is 'How this job is tried, timed and kept, where that differs from its task: {"retry", "timeout", "keep", "keep_failed"}, lengths in seconds. Null: as its task.';
alter table stepwell.history add column options json;
comment on column stepwell.history.options is 'As on the job.';
alter table stepwell.schedule
  add column metadata jsonb,
  add column max_attempts integer,
  add column options json,
  add constraint schedule_max_attempts check (max_attempts between 1 and 1000000);
comment on column stepwell.schedule.metadata is 'The metadata of its jobs.';
comment on column stepwell.schedule.max_attempts is 'How often each of its jobs may be tried; null: the task decides.';
comment on column stepwell.schedule.options is 'The options of its jobs.';
-- Its result has another column now.
drop function if exists stepwell.claim(
  uuid, text[], integer[], timestamptz[], uuid[], text[], integer, double precision[], bigint, boolean
);
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
