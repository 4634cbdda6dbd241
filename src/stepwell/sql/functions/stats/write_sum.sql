-- Write the sums of the counters of some minutes: over all tasks and queues, under an empty task and queue, and for
-- more than one minute also by task and queue. Sums over more than an hour are made from those of the hours. If they
-- are there already, they are replaced.
create or replace function stepwell.write_sum(_minutes integer, _since timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into stepwell.stat_sum as s (minutes, since, task, queue, enqueued, succeeded, failed, cancelled, ended,
    seconds, waits, runs)
  with counter as materialized (
    select r.task, r.queue, r.enqueued, r.succeeded, r.failed, r.cancelled,
      r.succeeded::bigint + r.failed + r.cancelled + r.handed_back + r.suspended + r.snoozed + r.advanced + r.restarted
        + r.undone + r.refused as ended,
      r.seconds, r.waits, r.runs
    from stepwell.stat r
    where r.minute >= _since and r.minute < _since + _minutes * interval '1 minute' and _minutes <= 60
    union all
    select r.task, r.queue, r.enqueued, r.succeeded, r.failed, r.cancelled, r.ended, r.seconds, r.waits, r.runs
    from stepwell.stat_sum r
    where r.minutes = 60 and r.since >= _since and r.since < _since + _minutes * interval '1 minute' and r.task <> ''
      and _minutes > 60
  ), bin as materialized (
    select r.task, r.queue, b.n, sum(b.wait) as wait, sum(b.run) as run
    from counter r cross join lateral unnest(r.waits, r.runs) with ordinality as b (wait, run, n)
    group by grouping sets ((r.task, r.queue, b.n), (b.n))
  ), histogram as materialized (
    select b.task, b.queue,
      array_agg(least(coalesce(b.wait, 0), 2147483647)::integer order by b.n) as waits,
      array_agg(least(coalesce(b.run, 0), 2147483647)::integer order by b.n) as runs
    from bin b
    group by b.task, b.queue
  ), total as materialized (
    select r.task, r.queue, sum(r.enqueued) as enqueued,
      sum(r.succeeded) as succeeded, sum(r.failed) as failed, sum(r.cancelled) as cancelled, sum(r.ended) as ended,
      sum(r.seconds) as seconds
    from counter r
    group by grouping sets ((r.task, r.queue), ())
  )
  select _minutes, _since, coalesce(t.task, ''), coalesce(t.queue, ''), least(t.enqueued, 2147483647),
    least(t.succeeded, 2147483647), least(t.failed, 2147483647), least(t.cancelled, 2147483647),
    least(t.ended, 2147483647), t.seconds, coalesce(h.waits, '{}'), coalesce(h.runs, '{}')
  from total t
  -- The sums over all have no task and no queue.
  left join histogram h on coalesce(h.task, '') = coalesce(t.task, '') and coalesce(h.queue, '') = coalesce(t.queue, '')
  where t.task is null or _minutes > 1
  on conflict on constraint stat_sum_pkey do update
  set enqueued = excluded.enqueued, succeeded = excluded.succeeded, failed = excluded.failed,
    cancelled = excluded.cancelled, ended = excluded.ended, seconds = excluded.seconds, waits = excluded.waits,
    runs = excluded.runs;
end
$$;
