-- The runs of a range of time over all tasks and queues, by points of time, and in sum: how many jobs were enqueued,
-- how runs ended, and the percentiles of waiting and run time.
create or replace function stepwell.stat_chart(_range text) returns json
language plpgsql stable
as $$
declare
  _now timestamptz := stepwell.now();
  _is record := stepwell.stat_range(_range);
  _point interval := _is.minutes * interval '1 minute';
  _last timestamptz := date_bin(_point, _now, '2000-01-01 00:00:00+00');
  _since timestamptz := _last - (_is.points - 1) * _point;
begin
  return (
    with counter as materialized (
      select r.*, date_bin(_point, r.at, '2000-01-01 00:00:00+00') as point
      from stepwell.stat_rows(_since, _is.sums, true) r
      where r.at <= _now
    ), bin as materialized (
      select c.point, b.n, sum(b.wait) as wait, sum(b.run) as run
      from counter c cross join lateral unnest(c.waits, c.runs) with ordinality as b (wait, run, n)
      group by grouping sets ((c.point, b.n), (b.n))
    ), histogram as materialized (
      -- The sum of all has no point.
      select b.point, array_agg(coalesce(b.wait, 0) order by b.n) as waits,
        array_agg(coalesce(b.run, 0) order by b.n) as runs
      from bin b
      group by b.point
    ), total as materialized (
      select c.point, sum(c.enqueued) as enqueued, sum(c.succeeded) as succeeded, sum(c.failed) as failed,
        sum(c.cancelled) as cancelled, sum(c.ended) as ended, sum(c.seconds) as seconds
      from counter c
      group by grouping sets ((c.point), ())
    ), point as materialized (
      select t.point, json_build_object(
        'at', t.point, 'enqueued', coalesce(t.enqueued, 0), 'succeeded', coalesce(t.succeeded, 0),
        'failed', coalesce(t.failed, 0), 'cancelled', coalesce(t.cancelled, 0), 'ended', coalesce(t.ended, 0),
        'seconds', coalesce(t.seconds, 0), 'waited', stepwell.percentiles(h.waits),
        'ran', stepwell.percentiles(h.runs)
      ) as is
      from total t
      left join histogram h on h.point is not distinct from t.point
    )
    select json_build_object(
      'range', _is.name, 'since', _since, 'until', _now, 'point_seconds', _is.minutes * 60, 'points', _is.points,
      'found', coalesce((select json_agg(p.is order by p.point) from point p where p.point is not null), '[]'),
      'total', (select p.is from point p where p.point is null)
    )
  );
end
$$;
