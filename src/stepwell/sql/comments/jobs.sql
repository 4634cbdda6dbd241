comment on type stepwell.state is
  'Live jobs are scheduled, ready, running, waiting or blocked (stepwell.job); finished jobs are succeeded, failed or '
  'cancelled (stepwell.history).';

comment on type stepwell.place is 'The position of a job in the claim order, of which workers are notified.';

comment on type stepwell.origin is 'The parent or the schedule of a new job, for stepwell.insert_jobs.';
comment on column stepwell.origin.parent_id is 'The job that spawns the new job.';
comment on column stepwell.origin.parent_key is 'The key of the step that spawns it.';
comment on column stepwell.origin.schedule_id is 'The schedule that enqueues it.';
comment on column stepwell.origin.scheduled_for is 'The tick for which it runs.';
comment on column stepwell.origin.blocked is 'It waits for the end of another run of the schedule.';

comment on type stepwell.marked_end is 'How a job with an admission or a group ended, for stepwell.to_history.';
comment on column stepwell.marked_end.id is 'The job.';
comment on column stepwell.marked_end.unique_key is 'Its unique key.';
comment on column stepwell.marked_end.state is 'How it ended.';
comment on column stepwell.marked_end.group_id is 'The group that it is a member of.';
comment on column stepwell.marked_end.error is 'Why it did not succeed.';
comment on column stepwell.marked_end.admitted is 'It has an admission, and so may have permits.';

comment on table stepwell.job is 'Live jobs only. The statement that finishes a job moves it to stepwell.history.';
comment on column stepwell.job.id is 'A version 7 uuid made by the database. The job keeps it in stepwell.history.';
comment on column stepwell.job.run_at is
  'The job does not run before this time. Among ready jobs of equal rank the earliest is claimed first.';
comment on column stepwell.job.claimed_at is 'When a worker last claimed the job.';
comment on column stepwell.job.worker_id is 'The worker that runs the job. Set exactly while the state is running.';
comment on column stepwell.job.epoch is
  'The number of claims. (id, epoch) is the fence on every later write: that of a late worker matches no row.';
comment on column stepwell.job.attempt is
  'Counted attempts, with the running one. A snooze or clean stop does not count.';
comment on column stepwell.job.max_attempts is 'Overrides the limit of the task; null: the limit of the task applies.';
comment on column stepwell.job.rank is 'Minus the priority, so that the whole claim order is ascending.';
comment on column stepwell.job.cancelling is 'A cancel was requested while the job ran. The worker is notified.';
comment on column stepwell.job.task is 'The name under which workers register the function.';
comment on column stepwell.job.queue is 'A name. A worker claims only from the queues it was started with.';
comment on column stepwell.job.args is 'The arguments by name: a JSON object, stored as it was written.';
comment on column stepwell.job.metadata is 'Any JSON object by which the job can be found; null: none.';
comment on column stepwell.job.progress is 'The progress that the running handler last reported.';
comment on column stepwell.job.reason is 'The reason given for the cancel.';
comment on column stepwell.job.schedule_id is 'The schedule that enqueued the job; null: none did.';
comment on column stepwell.job.scheduled_for is
  'The tick for which the job runs; a fork has that of the other job.';
comment on column stepwell.job.durable is 'The job may have rows in stepwell.step. Otherwise no steps are looked up.';
comment on column stepwell.job.awaits is 'While the job waits: its groups of steps. One complete group suffices.';
comment on column stepwell.job.cursor is 'The current step of a chain or state of a machine; null: the first.';
comment on column stepwell.job.input is 'The input of the step or state at the cursor; null: the first, with args.';
comment on column stepwell.job.parent_id is 'The job that spawned this job; null: none did.';
comment on column stepwell.job.parent_key is 'The key of the step of the parent that spawned this job.';
comment on column stepwell.job.forked_from is 'The job whose steps this job started with; null: it is not a fork.';
comment on column stepwell.job.undoing is
  'The job has failed or was cancelled and its steps are being compensated. The object holds the final state and '
  'error. Null: the job is not being undone.';
comment on column stepwell.job.unsure is
  'While the job waits: how often it looked for events while another session was about to commit one. '
  'stepwell.look_again looks again. Null: no need.';
comment on column stepwell.job.life is
  'How often the job began anew, by a restart or a retry from the start or after an undo. Each life has other random '
  'values.';
comment on column stepwell.job.steps_counted is
  'The successful steps at the last failed attempt. If the next failure finds more, attempts count from 1 again.';
comment on column stepwell.job.owner is 'The app whose workers run the job; null: any worker that knows the task.';
comment on column stepwell.job.misfits is
  'The signatures of the task that the args did not fit. Workers with one of these signatures do not claim the job '
  'before misfit_until. Null: none.';
comment on column stepwell.job.misfit_until is
  'Until then the job waits for a worker that its args fit. Then it fails.';
comment on column stepwell.job.misfit_epoch is 'The run that last found that the args do not fit.';
comment on column stepwell.job.misfit is 'A message that says which argument did not fit.';
comment on column stepwell.job.policy is
  'Retry, timeout and retention of this job where they differ from the task: {"retry", "timeout", "keep", '
  '"keep_failed"}, durations in seconds. Null: as the task.';
comment on column stepwell.job.group_id is 'The group of which the job is a member; null: none.';
comment on column stepwell.job.admission is
  'The unique key, limits, rates and fair key of the job, as stepwell.values.admission in Python writes them; null: '
  'none. Callers pass them as a member of the policy.';
comment on column stepwell.job.lone_limit is
  'The number of its limit, if the admission has one limit without hold and no rate; null: it has others, or none.';
comment on column stepwell.job.blocked_by is 'The key of the limit or rate in whose line the blocked job stands.';
comment on column stepwell.job.fair is 'The key by which the job takes turns with other jobs of its queue and rank.';
comment on index stepwell.job_blocked is 'The lines of limits and rates, in the order in which jobs are admitted.';
comment on index stepwell.job_turn is 'Finds the next turn of a queue and rank.';
comment on index stepwell.job_fair is 'Finds the latest turn of a fair key.';
comment on index stepwell.job_ready is 'The claim order: a claim is one walk along this index.';
comment on index stepwell.job_due is
  'Finds due jobs, and the time at which the next one is due. A job that waits without a limit is due at infinity.';
comment on index stepwell.job_resting is
  'Lists and counts scheduled, waiting and blocked jobs by state and queue, for the dashboard.';
comment on index stepwell.job_running is 'Finds the jobs that a dead worker held.';
comment on index stepwell.job_cancelling is 'Finds the jobs that a worker must stop.';
comment on index stepwell.job_schedule is
  'Finds the live runs of a schedule: first those not blocked, then the blocked ones in the order of admission.';
comment on index stepwell.job_misfit is 'Finds jobs that wait for a worker that their args fit, or were made ready.';

comment on table stepwell.history is 'Finished jobs, append-only. Pruning drops partitions: one per day of expiry.';
comment on column stepwell.history.expires_at is 'The end of the retention of the row; infinity: it is kept forever.';
comment on column stepwell.history.finished_at is 'When the job succeeded, failed for good or was cancelled.';
comment on column stepwell.history.error is
  'Why the job failed or was cancelled, in one line; details: stepwell.failure.';
comment on column stepwell.history.failed_step is 'The step at which the job failed, saved or not. A retry repeats it.';
comment on column stepwell.history.steps is
  'The saved steps in order, as stepwell.folded_steps writes and stepwell.unfold reads them; null: none.';
comment on column stepwell.history.group_id is 'As in stepwell.job.';
comment on column stepwell.history.admission is 'As in stepwell.job: a retry needs it.';
comment on index stepwell.history_id is 'Finds a finished job. Ids grow with time, so it also has the newest first.';
comment on index stepwell.history_failed is 'Lists failed jobs without reading the others.';
comment on index stepwell.history_cancelled is 'Lists cancelled jobs without reading the others.';

comment on table stepwell.queue_keep is 'How long the jobs of queues are kept after their end, set at run time.';
comment on column stepwell.queue_keep.name is 'The queue.';
comment on column stepwell.queue_keep.keep is
  'For how many seconds its jobs are kept after they succeeded; null: as their task or app says.';
comment on column stepwell.queue_keep.keep_failed is
  'For how many seconds its jobs are kept after they failed or were cancelled; null: as their task or app says.';
comment on column stepwell.queue_keep.set_at is 'When it was set.';

comment on table stepwell.run_log_head is
  'The jobs that have logs. A worker prunes the logs of jobs that are no longer kept.';
comment on column stepwell.run_log_head.job_id is 'The job.';
comment on column stepwell.run_log_head.last_line is 'The number of its last line.';
comment on column stepwell.run_log_head.lines is 'How many lines are kept.';
comment on column stepwell.run_log_head.bytes is 'About how many bytes they have.';
comment on column stepwell.run_log_head.look_at is 'When to see whether the job is still kept.';
comment on index stepwell.run_log_head_look is 'Finds the jobs to look at.';

comment on table stepwell.run_log is
  'What handlers have logged: of each job of a task with logs=True about the newest 1,000 lines or 256 kB.';
comment on column stepwell.run_log.job_id is 'The job.';
comment on column stepwell.run_log.line is 'Counts the lines of the job, from 1. Lines that were cut are counted.';
comment on column stepwell.run_log.attempt is 'The attempt that logged it.';
comment on column stepwell.run_log.at is 'When, by the clock of the worker.';
comment on column stepwell.run_log.level is 'Its level, as in Python: 20 is INFO, 40 is ERROR.';
comment on column stepwell.run_log.logger is 'The name of the logger.';
comment on column stepwell.run_log.message is 'The message, with its traceback, cut after 4,000 characters.';
