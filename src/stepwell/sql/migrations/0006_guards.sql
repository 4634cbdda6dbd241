-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.

-- Leases and outcomes.

-- Schedules.

-- Lives and attempts of a job.

alter table stepwell.job
  add column life integer not null default 0,
  add column steps_counted integer not null default 0;
alter table stepwell.history add column life integer not null default 0;
comment on column stepwell.job.life is 'How often the job has begun anew: by a restart, a retry from the start, or a retry after an undo. Random values differ from life to life.';
comment on column stepwell.job.steps_counted is 'How many steps had ended well when an attempt last failed. If there are more at the next failure, attempts are counted from 1 again.';
comment on column stepwell.history.life is 'As on the job.';
-- It has another parameter now.
drop function if exists stepwell.journal(uuid, text, json, json);
-- Its result has another column now.
drop function if exists stepwell.claim(uuid, text[], integer[], timestamptz[], uuid[], text[], integer, double precision[]);

-- Owners, and jobs whose arguments do not fit.

-- Counters.
