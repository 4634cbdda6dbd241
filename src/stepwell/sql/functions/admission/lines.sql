-- The keys in whose lines jobs wait, in order, after _after; null: from the first. For upkeep, in case a job was left in
-- line. From key to key along the index, so that the cost does not grow with the blocked jobs.
create or replace function stepwell.lines(_after text default null, _limit integer default 500) returns text[]
language plpgsql stable security definer
as $$
begin
  return array(
    with recursive line as (
      select (
        select j.blocked_by from stepwell.job j
        where j.blocked_by > coalesce(_after, '')
        order by j.blocked_by limit 1
      ) as key
      union all
      select (select j.blocked_by from stepwell.job j where j.blocked_by > l.key order by j.blocked_by limit 1)
      from line l
      where l.key is not null
    )
    select l.key from line l where l.key is not null limit _limit
  );
end
$$;
