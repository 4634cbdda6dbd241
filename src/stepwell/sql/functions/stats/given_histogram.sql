-- The sum of some rows of a two-dimensional array, each a histogram, without the empty bins at its end. Bins beyond the
-- last and numbers below 0 are ignored.
create or replace function stepwell.given_histogram(_rows integer[], _places bigint[]) returns integer[]
language sql immutable
as $$
  select coalesce((array_agg(b.count order by b.n))[:max(b.n) filter (where b.count > 0)], '{}')
  from (
    select v.n::integer as n, least(sum(greatest(v.count, 0)), 2147483647)::integer as count
    from unnest(_places) as p (place)
    cross join lateral unnest(_rows[p.place:p.place]) with ordinality as v (count, n)
    where v.n <= 68
    group by v.n
  ) b
$$;
