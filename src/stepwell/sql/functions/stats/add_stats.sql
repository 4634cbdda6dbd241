-- Add to the counters of this minute: the k-th element of each array is for _tasks[k] in _queues[k]. Null adds nothing.
-- _waits and _runs have a row for each, a histogram of waiting times and one of run times. Elements with a task or
-- queue name that no job can have, or with a number below 0 or a time that is not finite, are ignored. A counter that
-- has reached the largest number stays there: the counts of all other tasks must still be written.
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
  _refused integer[] default null,
  _waits integer[] default null,
  _runs integer[] default null
) returns void
language sql volatile security definer
as $$
  insert into stepwell.stat as s (minute, task, queue, succeeded, failed, cancelled, handed_back, seconds, suspended,
    snoozed, advanced, restarted, undone, refused, waits, runs)
  select date_trunc('minute', stepwell.now()), u.task, u.queue,
    least(coalesce(sum(u.succeeded), 0), 2147483647), least(coalesce(sum(u.failed), 0), 2147483647),
    least(coalesce(sum(u.cancelled), 0), 2147483647), least(coalesce(sum(u.handed_back), 0), 2147483647),
    least(sum(least(coalesce(u.seconds, 0), 1e15)), 1e15),
    least(coalesce(sum(u.suspended), 0), 2147483647), least(coalesce(sum(u.snoozed), 0), 2147483647),
    least(coalesce(sum(u.advanced), 0), 2147483647), least(coalesce(sum(u.restarted), 0), 2147483647),
    least(coalesce(sum(u.undone), 0), 2147483647), least(coalesce(sum(u.refused), 0), 2147483647),
    stepwell.given_histogram(_waits, array_agg(u.n)), stepwell.given_histogram(_runs, array_agg(u.n))
  from unnest(_tasks, _queues, _succeeded, _failed, _cancelled, _handed_back, _seconds, _suspended, _snoozed, _advanced,
    _restarted, _undone, _refused) with ordinality
    as u (task, queue, succeeded, failed, cancelled, handed_back, seconds, suspended, snoozed, advanced, restarted,
      undone, refused, n)
  where length(u.task) between 1 and 200 and length(u.queue) between 1 and 200
    and coalesce(least(u.succeeded, u.failed, u.cancelled, u.handed_back, u.suspended, u.snoozed, u.advanced,
      u.restarted, u.undone, u.refused), 0) >= 0
    -- To Postgres, NaN is larger than infinity.
    and coalesce(u.seconds, 0) >= 0 and coalesce(u.seconds, 0) < 'infinity'
  group by u.task, u.queue
  -- In one order, so that concurrent workers do not deadlock.
  order by u.task, u.queue
  on conflict on constraint stat_pkey do update
  set succeeded = least(s.succeeded::bigint + excluded.succeeded, 2147483647),
    failed = least(s.failed::bigint + excluded.failed, 2147483647),
    cancelled = least(s.cancelled::bigint + excluded.cancelled, 2147483647),
    handed_back = least(s.handed_back::bigint + excluded.handed_back, 2147483647),
    seconds = least(s.seconds + excluded.seconds, 1e15),
    suspended = least(s.suspended::bigint + excluded.suspended, 2147483647),
    snoozed = least(s.snoozed::bigint + excluded.snoozed, 2147483647),
    advanced = least(s.advanced::bigint + excluded.advanced, 2147483647),
    restarted = least(s.restarted::bigint + excluded.restarted, 2147483647),
    undone = least(s.undone::bigint + excluded.undone, 2147483647),
    refused = least(s.refused::bigint + excluded.refused, 2147483647),
    waits = stepwell.add_histograms(s.waits, excluded.waits), runs = stepwell.add_histograms(s.runs, excluded.runs)
$$;
