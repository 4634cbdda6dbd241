-- The limits and rates by key: those with permits, with jobs in line, or set at run time, up to 10,000 keys in their
-- order; or one key. A key without a setting has the numbers of the first job in its line, or of a job with a permit.
-- Counts stop at 10,000.
create or replace function stepwell.list_limits(_key text default null)
returns table (
  key text,
  most integer,
  most_is_set boolean,
  held integer,
  rate double precision,
  burst integer,
  rate_is_set boolean,
  next_at timestamptz,
  waiting integer,
  set_at timestamptz
)
language plpgsql stable security definer
as $$
declare
  _most_keys constant integer := 10000;
  _most_counted constant integer := 10000;
  _now timestamptz := stepwell.now();
begin
  return query
    with recursive held_key as (
      (select p.key from stepwell.permit p where _key is null order by p.key limit 1)
      union all
      select (select p.key from stepwell.permit p where p.key > k.key order by p.key limit 1)
      from held_key k
      where k.key is not null
    ), waiting_key as (
      (
        select j.blocked_by as key from stepwell.job j
        where j.blocked_by is not null and _key is null
        order by j.blocked_by limit 1
      )
      union all
      select (select j.blocked_by from stepwell.job j where j.blocked_by > k.key order by j.blocked_by limit 1)
      from waiting_key k
      where k.key is not null
    ), found as materialized (
      select f.key
      from (
        select _key as key
        union
        (select k.key from held_key k limit _most_keys)
        union
        (select k.key from waiting_key k limit _most_keys)
        union
        (select s.key from stepwell.key_setting s where _key is null order by s.key limit _most_keys)
      ) f
      where f.key is not null and f.key not like E'\x02%'
      order by f.key
      limit _most_keys
    )
    select f.key, coalesce(s.most, l.most), s.most is not null, h.count, 1 / coalesce(s.spacing, r.spacing),
      coalesce(s.burst, r.burst), s.spacing is not null,
      case when greatest(b.closed_until, b.next_at) > _now then greatest(b.closed_until, b.next_at) end, w.count,
      s.set_at
    from found f
    left join stepwell.key_setting s on s.key = f.key
    left join stepwell.bucket b on b.key = f.key
    cross join lateral (
      select count(*)::integer as count from (
        select from stepwell.permit p where p.key = f.key and not p.rate limit _most_counted
      ) p
    ) h
    cross join lateral (
      select count(*)::integer as count from (
        select from stepwell.job j where j.blocked_by = f.key limit _most_counted
      ) j
    ) w
    cross join lateral (
      select coalesce(
        (
          select j.admission from stepwell.job j
          where j.blocked_by = f.key
          order by j.blocked_by, j.rank, j.run_at, j.id
          limit 1
        ),
        (
          select j.admission from stepwell.permit p join stepwell.job j on j.id = p.job_id where p.key = f.key limit 1
        )
      ) as admission
    ) a
    left join lateral (
      select (e.rule ->> 'most')::integer as most
      from json_array_elements(a.admission -> 'limits') as e (rule)
      where e.rule ->> 'key' = f.key
      limit 1
    ) l on true
    left join lateral (
      select (e.rule ->> 'interval')::double precision as spacing, (e.rule ->> 'burst')::integer as burst
      from json_array_elements(a.admission -> 'rates') as e (rule)
      where e.rule ->> 'key' = f.key
      limit 1
    ) r on true
    where _key is null or s.key is not null or h.count > 0 or w.count > 0 or a.admission is not null
    order by f.key;
end
$$;
