-- The runs of a range of time by queue or by task, for some names: how they ended, the percentiles of waiting and run
-- time, and the points of a sparkline, [number, succeeded, failed], without those at which nothing ended.
create or replace function stepwell.stat_names(_range text, _by_task boolean, _names text[])
returns table (name text, stats json)
language plpgsql stable
as $$
declare
  _now timestamptz := stepwell.now();
  _is record := stepwell.stat_range(_range);
  _point interval := _is.spark_minutes * interval '1 minute';
  _since timestamptz := date_bin(_point, _now, '2000-01-01 00:00:00+00') - (_is.spark_points - 1) * _point;
begin
  return query
    with counter as materialized (
      select r.*, case when _by_task then r.task else r.queue end as of,
        (extract(epoch from r.at - _since) / 60)::integer / _is.spark_minutes as n
      from stepwell.stat_rows(_since, _is.spark_sums, false) r
      where r.at <= _now and case when _by_task then r.task else r.queue end = any (_names)
    ), bin as materialized (
      -- Most bins are empty. In the select list, unnest needs no tuplestore for each row.
      select b.of, b.n, sum(b.wait) as wait, sum(b.run) as run
      from (
        select c.of, generate_series(1, greatest(cardinality(c.waits), cardinality(c.runs))) as n,
          unnest(c.waits) as wait, unnest(c.runs) as run
        from counter c
      ) b
      where b.wait > 0 or b.run > 0
      group by b.of, b.n
    ), histogram as materialized (
      select l.of, array_agg(coalesce(b.wait, 0) order by g.n) as waits,
        array_agg(coalesce(b.run, 0) order by g.n) as runs
      from (select b.of, max(b.n) as last from bin b group by b.of) l
      cross join lateral generate_series(1, l.last) as g (n)
      left join bin b on b.of = l.of and b.n = g.n
      group by l.of
    ), point as materialized (
      select c.of, c.n, sum(c.enqueued) as enqueued, sum(c.succeeded) as succeeded, sum(c.failed) as failed,
        sum(c.cancelled) as cancelled, sum(c.ended) as ended, sum(c.seconds) as seconds
      from counter c
      group by c.of, c.n
    ), total as materialized (
      select p.of, sum(p.enqueued) as enqueued, sum(p.succeeded) as succeeded, sum(p.failed) as failed,
        sum(p.cancelled) as cancelled, sum(p.ended) as ended, sum(p.seconds) as seconds,
        json_agg(json_build_array(p.n, p.succeeded, p.failed) order by p.n) filter (where p.succeeded + p.failed > 0)
          as points
      from point p
      group by p.of
    )
    select t.of, json_build_object(
      'enqueued', t.enqueued, 'succeeded', t.succeeded, 'failed', t.failed, 'cancelled', t.cancelled, 'ended', t.ended,
      'seconds', t.seconds, 'waited', stepwell.percentiles(h.waits), 'ran', stepwell.percentiles(h.runs),
      'points', coalesce(t.points, '[]')
    )
    from total t
    left join histogram h on h.of = t.of;
end
$$;
