-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.

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

-- Counters.
