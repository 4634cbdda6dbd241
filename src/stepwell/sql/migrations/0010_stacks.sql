-- stepwell: compatible from 6
-- Functions, views and comments are replaced with every migration.

-- It also returns the task, queue and attempt of each job.
drop function if exists stepwell.cancel(uuid[], text, double precision);
-- How long the jobs of a queue are kept after their end, set at run time. Not in stepwell.queue_setting: a claim takes a
-- lock for each queue in that table.
create table stepwell.queue_keep (
  name text primary key check (length(name) between 1 and 200),
  keep double precision check (keep >= 0 and (keep <= 3155760000 or keep = 'infinity')),
  keep_failed double precision check (keep_failed >= 0 and (keep_failed <= 3155760000 or keep_failed = 'infinity')),
  set_at timestamptz not null
);
-- The settings of its tasks, for a person to look at. Not in tasks, which every enqueue from SQL reads.
alter table stepwell.worker add column settings jsonb;
-- They have new parameters.
drop function if exists stepwell.finish(uuid[], integer[], text[], double precision[], stepwell.state[], text[], uuid[]);
drop function if exists stepwell.fail(
  uuid[], integer[], text[], text[], text[], text[], double precision[], integer[], double precision[], text[], uuid[],
  text[]
);
drop function if exists stepwell.register_worker(
  text, integer, text, text[], text, integer, double precision, double precision, integer, text, text[],
  double precision, boolean, integer[]
);
drop function if exists stepwell.find_jobs(
  stepwell.state[], text, text, text, uuid, jsonb, text, timestamptz, timestamptz, uuid, integer, integer, boolean
);
-- It has a further parameter.
drop function if exists stepwell.enqueue_unique(
  text[], text[], text[], integer[], double precision[], timestamptz[], text[], integer[], text[], text[], boolean
);
