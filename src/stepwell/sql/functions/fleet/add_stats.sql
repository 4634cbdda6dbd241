-- Add to the counters of this minute: the k-th element of each array is for _tasks[k] in _queues[k]. Null adds nothing.
-- Elements with a task or queue name that no job can have are ignored.
create or replace function stepwell.add_stats(
  _tasks text[],
  _queues text[],
  _succeeded integer[],
  _failed integer[],
  _cancelled integer[],
  _handed_back integer[],
  _seconds double precision[],
  _suspended integer[] default null,
  _snoozed integer[] default null,
  _advanced integer[] default null,
  _restarted integer[] default null,
  _undone integer[] default null,
  _refused integer[] default null
) returns void
language sql volatile security definer
as $$
  insert into stepwell.stat as s (minute, task, queue, succeeded, failed, cancelled, handed_back, seconds, suspended,
    snoozed, advanced, restarted, undone, refused)
  select date_trunc('minute', stepwell.now()), u.task, u.queue,
    coalesce(sum(u.succeeded), 0), coalesce(sum(u.failed), 0), coalesce(sum(u.cancelled), 0),
    coalesce(sum(u.handed_back), 0), coalesce(sum(u.seconds), 0), coalesce(sum(u.suspended), 0),
    coalesce(sum(u.snoozed), 0), coalesce(sum(u.advanced), 0), coalesce(sum(u.restarted), 0),
    coalesce(sum(u.undone), 0), coalesce(sum(u.refused), 0)
  from unnest(_tasks, _queues, _succeeded, _failed, _cancelled, _handed_back, _seconds, _suspended, _snoozed, _advanced,
    _restarted, _undone, _refused)
    as u (task, queue, succeeded, failed, cancelled, handed_back, seconds, suspended, snoozed, advanced, restarted,
      undone, refused)
  where length(u.task) between 1 and 200 and length(u.queue) between 1 and 200
  group by u.task, u.queue
  -- In one order, so that concurrent workers do not deadlock.
  order by u.task, u.queue
  on conflict on constraint stat_pkey do update
  set succeeded = s.succeeded + excluded.succeeded, failed = s.failed + excluded.failed,
    cancelled = s.cancelled + excluded.cancelled, handed_back = s.handed_back + excluded.handed_back,
    seconds = s.seconds + excluded.seconds, suspended = s.suspended + excluded.suspended,
    snoozed = s.snoozed + excluded.snoozed, advanced = s.advanced + excluded.advanced,
    restarted = s.restarted + excluded.restarted, undone = s.undone + excluded.undone,
    refused = s.refused + excluded.refused
$$;
