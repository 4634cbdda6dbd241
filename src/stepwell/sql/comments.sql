-- Runs after the views: the comments on the schema, its types, tables, columns and indexes. They replace those that
-- migrations set. Where a name says nearly all, such as schedule.created_at, the comment of the migration stays. A
-- view's comment is in the view's own file.
comment on schema stepwell is 'Stepwell: background jobs and durable steps. Created and changed by "stepwell migrate".';

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

comment on type stepwell.member_end is 'How a member of a group ended, for stepwell.count_members.';
comment on column stepwell.member_end.group_id is 'The group.';
comment on column stepwell.member_end.id is 'The job.';
comment on column stepwell.member_end.state is 'succeeded, failed or cancelled.';
comment on column stepwell.member_end.error is 'The error of a failed job, at most 500 characters.';

comment on type stepwell.marked_end is 'How a job with an admission or a group ended, for stepwell.to_history.';
comment on column stepwell.marked_end.id is 'The job.';
comment on column stepwell.marked_end.unique_key is 'Its unique key.';
comment on column stepwell.marked_end.state is 'How it ended.';
comment on column stepwell.marked_end.group_id is 'The group that it is a member of.';
comment on column stepwell.marked_end.error is 'Why it did not succeed.';
comment on column stepwell.marked_end.admitted is 'It has an admission, and so may have permits.';

comment on type stepwell.line is 'Where a new job waits that its admission makes wait: its line, and its turn there.';
comment on column stepwell.line.admission is 'As in stepwell.job.';
comment on column stepwell.line.blocked_by is 'As in stepwell.job.';
comment on column stepwell.line.fair is 'As in stepwell.job.';
comment on column stepwell.line.turn is 'The place of a job with a fair key in the claim order.';

comment on table stepwell.migration is 'The migrations applied. The highest version is the version of the schema.';
comment on column stepwell.migration.version is 'The number at the beginning of the file name.';
comment on column stepwell.migration.name is 'The file name without its suffix.';
comment on column stepwell.migration.applied_at is 'When the migration was applied.';
comment on column stepwell.migration.compatible_from is
  'The oldest version whose code works with the schema after this migration; null: only code that has this migration.';

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
comment on column stepwell.job.scheduled_for is 'The tick for which the job runs.';
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
  'Counts of failures that are not yet added to their groups: a row for each call of stepwell.fail and group.';
comment on column stepwell.failure_tally.id is 'The order in which they are added.';
comment on column stepwell.failure_tally.fingerprint is 'The group.';
comment on column stepwell.failure_tally.at is 'When the failures were recorded.';
comment on column stepwell.failure_tally.count is 'How many there were.';
comment on column stepwell.failure_tally.task is 'As in failure_group, which may have to be made.';
comment on column stepwell.failure_tally.type is 'As in failure_group.';
comment on column stepwell.failure_tally.frame is 'As in failure_group.';
comment on column stepwell.failure_tally.message is 'The message of one of them.';
comment on column stepwell.failure_tally.job_id is 'The job of one of them.';

comment on table stepwell.failure_hour is 'How many failures of a group each hour of the last day had.';
comment on column stepwell.failure_hour.fingerprint is 'The group.';
comment on column stepwell.failure_hour.hour is 'The beginning of the hour.';
comment on column stepwell.failure_hour.count is 'How many failures it had.';

comment on table stepwell.worker is 'Registered workers. A row stays while its worker holds jobs.';
comment on column stepwell.worker.number is 'The key of the advisory lock that the session of a live worker holds.';
comment on column stepwell.worker.queues is 'The queues and queue patterns from which the worker claims.';
comment on column stepwell.worker.tasks is
  'The registered tasks, each with the limits that rescue needs and the default options of its jobs: {"max_attempts", '
  '"keep_failed", "by_queue", "queue", "priority"}. by_queue: the setting of a queue comes before its keep_failed. '
  'Workers of schema 6 register the limits only.';
comment on column stepwell.worker.running is 'How many jobs the worker ran at its last renewal.';
comment on column stepwell.worker.lease_until is 'When the lease ends, and with it the right to hold jobs.';
comment on column stepwell.worker.lock_held is
  'The session held the advisory lock at the last renewal. If not, as behind a pooler, only the lease counts.';
comment on column stepwell.worker.lock_missing_since is
  'When another worker first saw the lock free; null: it is held.';
comment on column stepwell.worker.overdue_since is
  'When another worker first found the lease ended while the advisory lock was held, as after the clock is set '
  'forward; null: renewed since.';
comment on column stepwell.worker.begun is
  'The number at the start of the process, if the worker lost its lease and registered again; null: number.';
comment on column stepwell.worker.schedules is 'The names of the schedules that the code of the worker declares.';
comment on column stepwell.worker.stale_after is
  'Schedules of this owner that no live worker has declared for this many seconds are removed; null: they are kept.';
comment on column stepwell.worker.named is
  'The app was given a name, so the worker also claims the jobs of that owner. Null: an older version, which claims '
  'the jobs of every owner.';
comment on column stepwell.worker.signatures is
  'Checksums of the parameters of the tasks, one for each task. Null: an older version, which has none.';
comment on index stepwell.worker_number is 'Finds the newest worker that knows a task.';

comment on table stepwell.clock is 'For tests: stepwell.now() returns the time in its row. Empty in production.';

comment on table stepwell.schedule is
  'Jobs to enqueue by cron or at an interval. Any worker computes the ticks; stepwell.tick decides under a lock on the '
  'row whether they are fired.';
comment on column stepwell.schedule.owner is 'The name of the app. No app changes the schedules of another.';
comment on column stepwell.schedule.cron is 'The cron expression; null: an interval.';
comment on column stepwell.schedule.overlap is
  'The effect of a tick while a run is live: skip, allow, queue (wait for its end) or replace (cancel it).';
comment on column stepwell.schedule.catchup is 'How many missed ticks are fired, the newest first: 0, 1 or more.';
comment on column stepwell.schedule.jitter is 'Each job is delayed by a random time of up to this many seconds.';
comment on column stepwell.schedule.declared_at is 'When a live worker last declared the schedule.';
comment on column stepwell.schedule.version is 'Grows with each change. Ticks of an older version are refused.';
comment on column stepwell.schedule.paused_at is 'When the schedule was paused; null: it is not paused.';
comment on column stepwell.schedule.next_tick_at is 'The next tick; null: the schedule is paused or has no other tick.';
comment on column stepwell.schedule.forgotten_until is 'Ticks up to then have no record left, and are not fired again.';
comment on column stepwell.schedule.named is 'The app was given a name, so the jobs belong to that owner.';
comment on column stepwell.schedule.max_attempts is 'The attempt limit of the jobs; null: the limit of the task.';
comment on index stepwell.schedule_due is 'Finds due schedules, and the time of the next tick.';

comment on table stepwell.tick is
  'The newest thousand ticks of each schedule, with their jobs. The key prevents firing a tick twice.';
comment on column stepwell.tick.job_id is 'The job that was enqueued; null: none.';
comment on column stepwell.tick.skipped is
  'Why there is no job: overlap (a run was live), missed (catchup is 0) or unique (another job had the unique key).';

comment on table stepwell.control is
  'Pauses and stops. A pause lasts until it is resumed. A stop is for workers that had started before.';
comment on column stepwell.control.name is 'The queue, the task or the id of the worker; empty for everything.';
comment on column stepwell.control.asked_at is 'When it was requested; for a stop, the last time.';
comment on column stepwell.control.up_to is
  'A stop is for workers with numbers up to this: unlike clocks, they only grow.';

comment on table stepwell.permit is
  'The admitted jobs: a row for each limit of a job until it ends or is handed back, and for each rate until it is '
  'claimed. A limit counts these rows, so a crash cannot lose a permit.';
comment on column stepwell.permit.key is 'The key of the limit or rate.';
comment on column stepwell.permit.job_id is 'The job.';
comment on column stepwell.permit.rate is 'It is for a rate, not for a limit.';
comment on column stepwell.permit.hold is 'The job keeps it while it waits, or waits for its next attempt.';
comment on index stepwell.permit_job is 'Finds the permits of a job.';

comment on table stepwell.key_lock is
  'The locks of the keys of limits and rates, and of queues with a limit: a row for all keys of the same hash.';
comment on column stepwell.key_lock.stripe is 'The hash of a key, 0 to 255, or that of the name of a queue, plus 256.';

comment on table stepwell.bucket is 'The token bucket of a rate. A bucket that is not here is full.';
comment on column stepwell.bucket.key is 'The key of the rate.';
comment on column stepwell.bucket.used is 'How many tokens were missing when a job was last claimed.';
comment on column stepwell.bucket.used_at is 'When that was. Tokens have come back since then, at the present rate.';
comment on column stepwell.bucket.closed_until is 'No job is admitted before: a handler raised RateLimited.';
comment on column stepwell.bucket.next_at is 'When the first job in line can be admitted; null: no job is in line.';
comment on index stepwell.bucket_next is 'Finds the buckets that have a token for the first job in line.';

comment on table stepwell.key_setting is 'Limits and rates set at run time, in place of those in the code.';
comment on column stepwell.key_setting.key is 'The key of the limit or rate.';
comment on column stepwell.key_setting.most is 'How many jobs run at once; null: as the code says.';
comment on column stepwell.key_setting.spacing is 'Seconds between two tokens of the rate; null: as the code says.';
comment on column stepwell.key_setting.burst is 'How many tokens the bucket of the rate holds.';
comment on column stepwell.key_setting.late is
  'The part of a further token that it holds, by which a smooth rate makes up for late claims; null: none.';
comment on column stepwell.key_setting.set_at is 'When it was set.';

comment on table stepwell.queue_keep is 'How long the jobs of queues are kept after their end, set at run time.';
comment on column stepwell.queue_keep.name is 'The queue.';
comment on column stepwell.queue_keep.keep is
  'For how many seconds its jobs are kept after they succeeded; null: as their task or app says.';
comment on column stepwell.queue_keep.keep_failed is
  'For how many seconds its jobs are kept after they failed or were cancelled; null: as their task or app says.';
comment on column stepwell.queue_keep.set_at is 'When it was set.';
comment on column stepwell.worker.settings is
  'The settings of its tasks, each with its value and source, for stepwell.task_settings. Null: a worker of schema 9.';
comment on table stepwell.queue_setting is
  'Limits and rates of queues, set at run time. A claim takes no more jobs than they allow.';
comment on column stepwell.queue_setting.name is 'The queue.';
comment on column stepwell.queue_setting.most is 'How many of its jobs run at once, over all workers; null: no limit.';
comment on column stepwell.queue_setting.spacing is 'Seconds between two tokens of its rate; null: no rate.';
comment on column stepwell.queue_setting.burst is 'How many tokens the bucket of its rate holds.';
comment on column stepwell.queue_setting.late is
  'The part of a further token that it holds, by which a smooth rate makes up for late claims; null: none.';
comment on column stepwell.queue_setting.set_at is 'When it was set.';
comment on column stepwell.queue_setting.seen_at is
  'When a claim first found that all running jobs of the queue have a permit.';
comment on column stepwell.queue_setting.all_counted is
  'Whether all running jobs of the queue have a permit. False: some may have been claimed before the limit was set, '
  'and claims count these one by one.';

comment on table stepwell.turn_clock is
  'How far the turns of the fair keys of a queue and rank have come. A key with no waiting job begins here.';
comment on column stepwell.turn_clock.queue is 'The queue.';
comment on column stepwell.turn_clock.rank is 'Minus the priority.';
comment on column stepwell.turn_clock.turn is 'The latest turn that was claimed.';
comment on column stepwell.turn_clock.moved_at is 'When it was last moved, which is at most every 100 ms.';

comment on table stepwell.leader is
  'The worker that does the upkeep for the fleet until its lease ends. Two leaders at once do no harm.';

comment on table stepwell.stat is
  'How runs ended, counted by the minute. Workers count in memory and write every few seconds; the counts that a '
  'killed worker had not written are lost.';
comment on column stepwell.stat.handed_back is
  'Runs stopped by a shutdown, or that the worker could not begin. They do not count as attempts. Workers of schema 5 '
  'also count snoozed runs here.';
comment on column stepwell.stat.advanced is 'Runs of chains and machines that continue later or in another queue.';
comment on column stepwell.stat.undone is 'Runs that compensated the steps of their job.';
comment on column stepwell.stat.refused is 'Runs whose outcome was refused by the fence.';
comment on column stepwell.stat.seconds is 'How long all these runs took, added up; each is in exactly one counter.';
comment on column stepwell.stat.enqueued is
  'Jobs that were enqueued in this minute, by their enqueued_at. The leader counts them half a minute later, from '
  'stepwell.job and stepwell.history. It misses jobs that were committed later than that, or had ended and were '
  'not kept.';
comment on column stepwell.stat.waits is
  'A histogram of how long these runs had been due when they began: element n is the number of runs in bin n of '
  'stepwell.histogram_bounds(). Empty bins at the end are left out. Due is the run_at of the job, or with a fair key '
  'the time of its enqueue, by the clock of the database; the begin is by the clock of the worker.';
comment on column stepwell.stat.runs is 'A histogram of how long these runs took, with the same bins.';

comment on table stepwell.stat_sum is
  'Sums of stepwell.stat: of every minute over all tasks and queues, of every five minutes, hour and quarter of a day '
  'also by task and queue. The leader writes them. Those of an hour or more are kept for eight days, others for two.';
comment on column stepwell.stat_sum.minutes is 'Over how many minutes: 1, 5, 60 or 360.';
comment on column stepwell.stat_sum.since is 'The first of these minutes.';
comment on column stepwell.stat_sum.task is 'The task; empty: all tasks and queues.';
comment on column stepwell.stat_sum.queue is 'The queue; empty: all tasks and queues.';
comment on column stepwell.stat_sum.enqueued is 'Jobs that were enqueued.';
comment on column stepwell.stat_sum.succeeded is 'Runs that succeeded.';
comment on column stepwell.stat_sum.failed is 'Runs that failed.';
comment on column stepwell.stat_sum.cancelled is 'Runs that were cancelled.';
comment on column stepwell.stat_sum.ended is 'Runs that ended in any way.';
comment on column stepwell.stat_sum.seconds is 'How long all of them took, added up.';
comment on column stepwell.stat_sum.waits is 'The sum of the histograms of waiting times.';
comment on column stepwell.stat_sum.runs is 'The sum of the histograms of run times.';

comment on table stepwell.stat_progress is 'How far the leader has counted and added up; one row.';
comment on column stepwell.stat_progress.single is 'True.';
comment on column stepwell.stat_progress.counted_to is 'Jobs up to this id are counted as enqueued.';
comment on column stepwell.stat_progress.minutes_to is 'Minutes before this one are added up.';
comment on column stepwell.stat_progress.fives_to is 'Five minutes before these are added up.';
comment on column stepwell.stat_progress.hours_to is 'Hours before this one are added up.';
comment on column stepwell.stat_progress.quarters_to is 'Quarters of a day before this one are added up.';

comment on table stepwell.step is 'The saved steps of live jobs. The end of a job folds them into stepwell.history.';
comment on column stepwell.step.job_id is 'The job; no foreign key, which would be checked for each job that ends.';
comment on column stepwell.step.until is 'The end of a sleep, or the time limit of a wait; null: neither, or no limit.';
comment on column stepwell.step.n is 'The position of the step in the order in which the job reached its steps.';
comment on column stepwell.step.epoch is 'The run that saved the step. Unused: nothing reads it.';
comment on column stepwell.step.fingerprint is 'A checksum of the arguments, to detect drift; null: no arguments.';
comment on column stepwell.step.awaited is 'The group of steps in which the job waits for this one; null: none.';
comment on column stepwell.step.pending is 'A sleep, wait or child that has begun and not ended.';
comment on column stepwell.step.timed_out is 'The wait reached its time limit.';
comment on column stepwell.step.undo is 'The step is compensated if the job fails or is cancelled.';
comment on column stepwell.step.large is 'The value is in stepwell.large_value or, for a wait, in stepwell.event.';
comment on column stepwell.step.kind is
  'step, transaction, retry, sleep, wait, receive, child, first, now, random, uuid, patch, state, undo; taken: an '
  'event taken before a restart.';
comment on column stepwell.step.error is 'The type and message of the error, and the state of a child; null: none.';
comment on index stepwell.step_pending is 'Tells whether a group of steps is complete.';
comment on index stepwell.step_waiting is 'Finds the steps that wait for an event.';
comment on index stepwell.step_large_event is 'Tells whether a step still refers to the large value of an event.';

comment on table stepwell.large_value is
  'Values of steps over 64 KB, read on demand and not with each claim. They expire with the history of the job.';

comment on table stepwell.event is
  'Events, for all jobs, and signals, for one. Each wait takes the oldest event that its job has not taken yet.';
comment on column stepwell.event.transaction is 'The transaction that emitted the event and delivers it at commit.';
comment on column stepwell.event.job_id is 'The job to which a signal was sent; null: an event for all jobs.';
comment on column stepwell.event.key is 'The subject of the event, such as an order number; empty: none.';
comment on column stepwell.event.delivered is 'Another event of the same transaction has delivered this one.';
comment on column stepwell.event.late is
  'The delivery is repeated until no transaction up to this one is running; 0: not repeated yet; null: no need.';
comment on column stepwell.event.late_turn is 'The transaction that last repeated the delivery; the lowest come first.';
comment on column stepwell.event.large is
  'The value is over 64 KB, so steps refer to it instead of copying it. Not set on events from before schema 6.';
comment on column stepwell.event.kept_until is
  'The value is kept until then for the history of jobs whose steps refer to it; null: no such job. New waits do not '
  'find the event by this.';
comment on index stepwell.event_name is 'Finds the events that were emitted before a wait began.';
comment on index stepwell.event_sent is 'Finds the signals of a job, first in, first out.';
comment on index stepwell.event_transaction is 'Finds the other events of a transaction.';
comment on index stepwell.event_late is 'Finds the events that stepwell.deliver_late delivers.';

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

comment on table stepwell.privilege is
  'What each kind of role may do, rewritten from rights.sql by each migration. A function not listed is internal.';
comment on column stepwell.privilege.kind is
  'producer, worker, viewer, operator; everybody: roles that may use the schema.';

comment on table stepwell.grantee is 'The grants made by "stepwell grant". Each migration grants them again.';
comment on column stepwell.grantee.role_id is 'The oid of the role. A later role of the same name is another role.';

comment on table stepwell.size_limit is
  'The size limits, in bytes, set by the owner of the schema with stepwell.set_size_limit or "stepwell sizes set".';
comment on column stepwell.size_limit.name is
  'args and metadata of a job; event and signal: their values; result; step: the value or error of a step; progress; '
  'job: everything that a worker receives with one job (args, metadata, saved steps).';
comment on column stepwell.size_limit.bytes is 'The limit, at least 65536.';

comment on table stepwell.unique_key is
  'The unique keys of jobs. A key is taken if live is true or expires_at is to come.';
comment on column stepwell.unique_key.key is
  'The key with its scope, as a JSON array; a long one ends in a digest of the whole.';
comment on column stepwell.unique_key.job_id is 'The job that has the key, live or finished.';
comment on column stepwell.unique_key.live is 'Whether the key is taken until the job ends, or starts.';
comment on column stepwell.unique_key.until_start is 'Whether the first claim of the job frees the key.';
comment on column stepwell.unique_key.expires_at is
  'The end of the period for which the key stays taken; null: it has none.';
comment on index stepwell.unique_key_expiry is 'Finds the keys whose period is over.';

comment on table stepwell.audit is
  'Acts of people. Rows are only added, and pruned after a year; the count of a bulk change grows with its batches.';
comment on column stepwell.audit.id is 'The order of the acts.';
comment on column stepwell.audit.at is 'When it was done.';
comment on column stepwell.audit.who is 'The person, as the dashboard, the command line or the program named them.';
comment on column stepwell.audit.via is 'web, cli or python.';
comment on column stepwell.audit.role is 'The role that was connected to the database.';
comment on column stepwell.audit.act is 'What was done, in a word or two.';
comment on column stepwell.audit.target is 'What it was done to: a thing by its name, or the filter of a bulk change.';
comment on column stepwell.audit.count is 'How many jobs or other things were changed.';
comment on column stepwell.audit.bulk is 'Shared by the batches of a bulk change; null: it had none.';
comment on index stepwell.audit_bulk is 'Finds the row that the next batch of a bulk change is added to.';

comment on table stepwell.bulk is
  'Bulk operations: changes of all jobs that match a filter. stepwell.bulk_chunk works them off, chunk by chunk.';
comment on column stepwell.bulk.id is 'The operation.';
comment on column stepwell.bulk.act is 'retry, cancel, run (now), delete or move.';
comment on column stepwell.bulk.state is
  'running; done: all that matched were looked at; stopped: by somebody, before that.';
comment on column stepwell.bulk.filter is
  'Which jobs: states, queue, task and so on, as stepwell.start_bulk takes them.';
comment on column stepwell.bulk.options is
  'How they are changed, such as the reason of a cancel or the queue of a move.';
comment on column stepwell.bulk.expected is 'How many jobs somebody has confirmed; null: nobody has counted them.';
comment on column stepwell.bulk.asked_by is 'Who asked for it.';
comment on column stepwell.bulk.as_of is 'Jobs that were enqueued, or ended, after this time are not changed.';
comment on column stepwell.bulk.started_at is 'When it was asked for.';
comment on column stepwell.bulk.finished_at is 'When it was done or stopped; null: it runs.';
comment on column stepwell.bulk.worked_at is 'The end of the last chunk, in real time.';
comment on column stepwell.bulk.next_at is 'The next chunk begins no earlier, in real time.';
comment on column stepwell.bulk.looked_to is 'The last job that was looked at: the next chunk has older ones.';
comment on column stepwell.bulk.looked is 'How many jobs were looked at.';
comment on column stepwell.bulk.done is 'How many were changed.';
comment on column stepwell.bulk.skipped is 'How many matched, but could not be changed any more or need no change.';
comment on column stepwell.bulk.failed is 'How many could not be changed because of an error, such as a lock.';
comment on column stepwell.bulk.became is 'What the changed jobs became, with their numbers.';
comment on column stepwell.bulk.error is 'The last of these errors, or why a chunk failed as a whole.';
comment on index stepwell.bulk_running is 'Finds the operation whose chunk is next.';

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

comment on table stepwell.stack_request is
  'Requests for the stacks of running handlers, and their answers, until they are read, or for a minute.';
comment on column stepwell.stack_request.id is 'Known to the asker and to the worker.';
comment on column stepwell.stack_request.job_id is 'The job.';
comment on column stepwell.stack_request.worker_id is 'The worker that runs it.';
comment on column stepwell.stack_request.asked_at is 'When it was asked for.';
comment on column stepwell.stack_request.answer is 'The stack, or why there is none; null: no answer yet.';
comment on index stepwell.stack_request_open is 'Finds the requests that a worker has not answered.';

comment on table stepwell.saved_view is 'Filters of the list of jobs that somebody has named. The dashboard shows them to all.';
comment on column stepwell.saved_view.name is 'The name.';
comment on column stepwell.saved_view.filters is
  'The filters and the order, by name, as they were typed: {"state": "failed", "since": "2h"}.';
comment on column stepwell.saved_view.saved_by is 'Who saved it.';
comment on column stepwell.saved_view.saved_at is 'When it was saved.';
