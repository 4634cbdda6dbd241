-- Add to this minute's counters: the k-th element of each array is for _tasks[k] in _queues[k].
create or replace function stepwell.add_stats(
  _tasks text[],
  _queues text[],
  _succeeded integer[],
  _failed integer[],
  _cancelled integer[],
  _handed_back integer[],
  _seconds double precision[]
) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into stepwell.stat as s (minute, task, queue, succeeded, failed, cancelled, handed_back, seconds)
  select date_trunc('minute', stepwell.now()), u.task, u.queue, u.succeeded, u.failed, u.cancelled, u.handed_back, u.seconds
  from unnest(_tasks, _queues, _succeeded, _failed, _cancelled, _handed_back, _seconds)
    as u (task, queue, succeeded, failed, cancelled, handed_back, seconds)
  -- In order, as workers that write at the same moment do: so none waits for one that waits for it.
  order by u.task, u.queue
  on conflict on constraint stat_pkey do update
  set succeeded = s.succeeded + excluded.succeeded, failed = s.failed + excluded.failed,
    cancelled = s.cancelled + excluded.cancelled, handed_back = s.handed_back + excluded.handed_back,
    seconds = s.seconds + excluded.seconds
$$;
