-- What a chart of a range of time shows: how many points of how many minutes each, and of how many minutes the sums are
-- that it reads. A sparkline, one for each queue or task, has fewer points. An unknown range is an hour.
create or replace function stepwell.stat_range(
  _range text,
  out name text,
  out points integer,
  out minutes integer,
  out sums integer,
  out spark_points integer,
  out spark_minutes integer,
  out spark_sums integer
)
language sql immutable
as $$
  select r.name, r.points, r.minutes, r.sums, r.spark_points, r.spark_minutes, r.spark_sums
  from (
    values
      ('15m', 15, 1, 1, 15, 1, 1),
      ('1h', 60, 1, 1, 12, 5, 1),
      ('6h', 72, 5, 5, 12, 30, 5),
      ('1d', 96, 15, 5, 24, 60, 60),
      ('7d', 84, 120, 60, 28, 360, 360)
  ) as r (name, points, minutes, sums, spark_points, spark_minutes, spark_sums)
  where r.name = _range or r.name = '1h'
  order by r.name = _range desc nulls last
  limit 1
$$;
