comment on table stepwell.stat is
  'How runs ended, counted by the minute. Workers count in memory and write every few seconds; ended runs that a '
  'killed worker had not written are not counted. The runs that it had not finished are added by '
  'stepwell.fold_failures.';
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
