-- stepwell: compatible from 6
-- Functions, views, settings and comments are replaced after this file.

-- It has a new parameter and new columns in its result.
drop function if exists stepwell.promote(integer);

-- Their results have the queue and the attempt of each job.
drop function if exists stepwell.fail_held(uuid, text, jsonb);
drop function if exists stepwell.remove_worker(uuid, text, jsonb);
drop function if exists stepwell.rescue_jobs(double precision, integer);
drop function if exists stepwell.lead_and_rescue(uuid, double precision);
drop function if exists stepwell.lock_holders(uuid[], boolean);

-- The parent or schedule of a new job, for stepwell.insert_jobs.
create type stepwell.origin as (
  parent_id uuid,
  parent_key text,
  schedule_id uuid,
  scheduled_for timestamptz,
  blocked boolean
);
