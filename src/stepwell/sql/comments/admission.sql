comment on type stepwell.line is 'Where a new job waits: the line that it is in, or its turn.';
comment on column stepwell.line.admission is 'As in stepwell.job.';
comment on column stepwell.line.blocked_by is 'As in stepwell.job.';
comment on column stepwell.line.fair is 'As in stepwell.job.';
comment on column stepwell.line.turn is 'The place of a job with a fair key in the claim order.';

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
  'The slack: the part of a further token that it holds, by which a smooth rate makes up for late claims; null: none.';
comment on column stepwell.key_setting.set_at is 'When it was set.';

comment on table stepwell.queue_setting is
  'Limits and rates of queues, set at run time. A claim takes no more jobs than they allow.';
comment on column stepwell.queue_setting.name is 'The queue.';
comment on column stepwell.queue_setting.most is 'How many of its jobs run at once, over all workers; null: no limit.';
comment on column stepwell.queue_setting.spacing is 'Seconds between two tokens of its rate; null: no rate.';
comment on column stepwell.queue_setting.burst is 'How many tokens the bucket of its rate holds.';
comment on column stepwell.queue_setting.late is
  'The slack: the part of a further token that it holds, by which a smooth rate makes up for late claims; null: none.';
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
