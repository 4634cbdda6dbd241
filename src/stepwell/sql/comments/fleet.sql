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
comment on column stepwell.worker.settings is
  'The settings of its tasks, each with its value and source, for stepwell.task_settings. Null: a worker of schema 9.';
comment on index stepwell.worker_number is 'Finds the newest worker that knows a task.';

comment on table stepwell.control is
  'Pauses and stops. A pause lasts until it is resumed. A stop is for workers that had started before.';
comment on column stepwell.control.name is 'The queue, the task or the id of the worker; empty for everything.';
comment on column stepwell.control.asked_at is 'When it was requested; for a stop, the last time.';
comment on column stepwell.control.up_to is
  'A stop is for workers with numbers up to this: unlike clocks, they only grow.';

comment on table stepwell.leader is
  'The worker that does the upkeep for the fleet until its lease ends. Two leaders at once do no harm.';

comment on table stepwell.stack_request is
  'Requests for the stacks of running handlers, and their answers, until they are read, or for a minute.';
comment on column stepwell.stack_request.id is 'Known to the asker and to the worker.';
comment on column stepwell.stack_request.job_id is 'The job.';
comment on column stepwell.stack_request.worker_id is 'The worker that runs it.';
comment on column stepwell.stack_request.asked_at is 'When it was asked for.';
comment on column stepwell.stack_request.answer is 'The stack, or why there is none; null: no answer yet.';
comment on index stepwell.stack_request_open is 'Finds the requests that a worker has not answered.';
