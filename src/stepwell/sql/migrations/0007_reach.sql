-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

-- The options of a task.

comment on column stepwell.worker.tasks is 'The tasks it registered, each with the limits that rescue needs and the options of jobs that name none: {"max_attempts", "keep_failed", "queue", "priority"}. Workers of schema 6 register the limits only.';
create index worker_number on stepwell.worker (number);
comment on index stepwell.worker_number is 'Finds the worker that registered last of those that know a task.';
-- Its args may be jsonb, too.
drop function if exists stepwell.enqueue(text, json, text, integer, interval, timestamptz, jsonb, integer, text);
