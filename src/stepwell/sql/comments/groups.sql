comment on type stepwell.member_end is 'How a member of a group ended, for stepwell.count_members.';
comment on column stepwell.member_end.group_id is 'The group.';
comment on column stepwell.member_end.id is 'The job.';
comment on column stepwell.member_end.state is 'succeeded, failed or cancelled.';
comment on column stepwell.member_end.error is 'The error of a failed job, at most 500 characters.';

comment on table stepwell.job_group is
  'Groups of jobs. A group counts its members as they end, and starts its callback once, when all have ended.';
comment on column stepwell.job_group.id is 'The group.';
comment on column stepwell.job_group.created_at is 'When the group was opened.';
comment on column stepwell.job_group.finished_at is 'When all members had ended; null: not yet. It is set once.';
comment on column stepwell.job_group.expires_at is 'When the row may be deleted; infinity: the group has not ended.';
comment on column stepwell.job_group.keep is 'For how many seconds the row is kept after the end.';
comment on column stepwell.job_group.then_id is 'The job that starts when all have ended; null: there is none.';
comment on column stepwell.job_group.then_task is 'The task of that job.';
comment on column stepwell.job_group.then_parameter is 'The argument that gets the summary; null: there is none.';
comment on column stepwell.job_group.then_delay is 'For how many seconds the callback waits after the end.';
comment on column stepwell.job_group.then_started is 'The callback has its summary and may run.';
comment on column stepwell.job_group.first_id is 'No member has a smaller id.';
comment on column stepwell.job_group.last_id is 'No member has a larger id.';
comment on column stepwell.job_group.added is 'How many members it has so far.';
comment on column stepwell.job_group.total is 'How many members it has; null: more may come.';
comment on column stepwell.job_group.succeeded is 'How many have succeeded, without those in stepwell.group_tally.';
comment on column stepwell.job_group.failed is 'How many have failed.';
comment on column stepwell.job_group.cancelled is 'How many were cancelled.';
comment on column stepwell.job_group.failures is 'The first ten that failed: [{"id", "error"}].';
comment on index stepwell.job_group_then is 'Finds the group of a callback that is retried.';
comment on index stepwell.job_group_expires is 'Finds expired groups.';

comment on table stepwell.group_tally is
  'Counts that are to be added to stepwell.job_group by a worker, because its row was locked or must not be.';
comment on column stepwell.group_tally.id is 'In the order of the changes of one job.';
comment on column stepwell.group_tally.group_id is 'The group.';
comment on column stepwell.group_tally.succeeded is 'How many more have succeeded.';
comment on column stepwell.group_tally.failed is 'How many more have failed; negative: a retry brought them back.';
comment on column stepwell.group_tally.cancelled is 'How many more were cancelled.';
comment on column stepwell.group_tally.changes is 'Failures, [{"id", "error"}], and members that a retry brought back.';
comment on index stepwell.group_tally_group is 'Finds the counts of a group.';
