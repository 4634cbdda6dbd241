-- stepwell: compatible from 6
-- Functions, views, settings and comments are replaced after this file.

-- It has a new parameter and a new column in its result.
drop function if exists stepwell.promote(integer);

-- The parent or schedule of a new job, for stepwell.insert_jobs.
create type stepwell.origin as (
  parent_id uuid,
  parent_key text,
  schedule_id uuid,
  scheduled_for timestamptz,
  blocked boolean
);
