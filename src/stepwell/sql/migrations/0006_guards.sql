-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.

-- Leases and outcomes.

-- Schedules.

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
