-- The limits and rates by key after _after, in order, at most _limit: each with up to three jobs that hold it, and up
-- to three that wait first in its line. Counts stop at 10,000.
create or replace function stepwell.dashboard_limits(_after text default null, _limit integer default 50) returns json
language plpgsql stable security definer
as $$
declare
  _from text := coalesce(_after, '');
  _page integer := least(greatest(coalesce(_limit, 50), 1), 200);
  _keys text[];
begin
  _keys := array(
    with recursive held as (
      select (select p.key from stepwell.permit p where p.key > _from order by p.key limit 1) as key, 1 as n
      union all
      select (select p.key from stepwell.permit p where p.key > h.key order by p.key limit 1), h.n + 1
      from held h
      -- Permits of queues have keys that begin with this character.
      where h.key is not null and h.n <= _page + 1000
    ), waiting as (
      select (
        select j.blocked_by from stepwell.job j where j.blocked_by > _from order by j.blocked_by limit 1
      ) as key, 1 as n
      union all
      select (select j.blocked_by from stepwell.job j where j.blocked_by > w.key order by j.blocked_by limit 1), w.n + 1
      from waiting w
      where w.key is not null and w.n <= _page
    )
    select k.key from (
      select h.key from held h
      union
      select w.key from waiting w
      union
      (select s.key from stepwell.key_setting s where s.key > _from order by s.key limit _page + 1)
    ) k
    where k.key is not null and k.key not like E'\x02%'
    order by k.key
    limit _page + 1
  );
  return json_build_object(
    'limits', coalesce(
      (
        select json_agg(
          json_build_object(
            'key', l.key, 'most', l.most, 'most_is_set', l.most_is_set, 'held', l.held, 'rate', l.rate,
            'burst', l.burst, 'rate_is_set', l.rate_is_set,
            'next_at', nullif(nullif(l.next_at, 'infinity'), '-infinity'), 'waiting', l.waiting, 'set_at', l.set_at,
            'holders', array(
              select p.job_id from stepwell.permit p where p.key = l.key and not p.rate
              order by p.key, p.rate, p.job_id limit 3
            ),
            'line', array(
              select j.id from stepwell.job j where j.blocked_by = l.key
              order by j.blocked_by, j.rank, j.run_at, j.id limit 3
            )
          )
          order by l.key
        )
        from unnest(_keys[:_page]) as k (key) cross join lateral stepwell.list_limits(k.key) l
      ),
      '[]'
    ),
    'next', case when cardinality(_keys) > _page then _keys[_page] end
  );
end
$$;
