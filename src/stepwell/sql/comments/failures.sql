comment on table stepwell.failure is 'A row for each attempt that did not succeed. Pruned like stepwell.history.';
comment on column stepwell.failure.expires_at is 'The end of the retention of the row: that of the task for failures.';
comment on column stepwell.failure.attempt is 'The number of the counted attempt.';
comment on column stepwell.failure.reason is
  'error, timeout, lease_lost, bad_args, bad_result; unreadable: the contents of the job could not be sent to a '
  'worker; broken: a constraint refuses the row of the job.';
comment on column stepwell.failure.fingerprint is
  'The group that the failure was counted in; null: it is of a cancelled job, or from before schema 11.';
comment on index stepwell.failure_fingerprint is 'Finds the jobs of a group of failures, newest last.';

comment on table stepwell.failure_group is
  'Failures of a task with the same fingerprint. Pruned 90 days after the last one.';
comment on column stepwell.failure_group.fingerprint is 'A digest of task, type and frame.';
comment on column stepwell.failure_group.task is 'The task.';
comment on column stepwell.failure_group.type is
  'The type of the error; (other): all failures of the task that have no group of their own.';
comment on column stepwell.failure_group.frame is
  'The innermost function of the user''s code in the traceback, as module:name; null: there is none.';
comment on column stepwell.failure_group.state is
  'open; resolved: the next failure opens it again; ignored: it stays so.';
comment on column stepwell.failure_group.state_at is 'When somebody last set the state; null: nobody has.';
comment on column stepwell.failure_group.reopened is 'How often a failure has opened it again.';
comment on column stepwell.failure_group.reopened_at is 'When a failure last opened it again.';
comment on column stepwell.failure_group.first_at is 'When the first failure was recorded.';
comment on column stepwell.failure_group.last_at is 'When the last failure was recorded.';
comment on column stepwell.failure_group.count is 'How many attempts have failed, but for those in failure_tally.';
comment on column stepwell.failure_group.message is 'The message of one of the last failures.';
comment on column stepwell.failure_group.job_id is 'The job of that failure.';
comment on column stepwell.failure_group.is_full is
  'Whether the task takes no further groups. Only the group (other) has it set.';
comment on index stepwell.failure_group_task is 'Counts the groups of a task.';

comment on table stepwell.failure_tally is
  'Counts of failures that are not yet added to their groups: a row for each call of stepwell.fail and group. Lost '
  'runs have rows of their own, by queue.';
comment on column stepwell.failure_tally.id is 'The order in which they are added.';
comment on column stepwell.failure_tally.fingerprint is 'The group.';
comment on column stepwell.failure_tally.at is 'When the failures were recorded.';
comment on column stepwell.failure_tally.count is 'How many there were.';
comment on column stepwell.failure_tally.task is 'As in failure_group, which may have to be made.';
comment on column stepwell.failure_tally.type is 'As in failure_group.';
comment on column stepwell.failure_tally.frame is 'As in failure_group.';
comment on column stepwell.failure_tally.queue is 'The queue of lost runs; null: there are none.';
comment on column stepwell.failure_tally.lost is
  'How many runs ended without a worker that could count them: stepwell.fold_failures adds them to stepwell.stat.';
comment on column stepwell.failure_tally.message is 'The message of one of them.';
comment on column stepwell.failure_tally.job_id is 'The job of one of them.';

comment on table stepwell.failure_hour is 'How many failures of a group each hour of the last day had.';
comment on column stepwell.failure_hour.fingerprint is 'The group.';
comment on column stepwell.failure_hour.hour is 'The beginning of the hour.';
comment on column stepwell.failure_hour.count is 'How many failures it had.';
