-- The keys in whose lines jobs wait, or that have a setting and permits, in order, after _after; null: from the first.
-- For upkeep, in case a job was left in line, or a permit was not taken back. From key to key along the index, so that
-- the cost does not grow with the blocked jobs.
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
    select k.key
    from (
      (select l.key from line l where l.key is not null limit _limit)
      union
      select s.key from stepwell.key_setting s
      where s.key > coalesce(_after, '') and (select true from stepwell.permit p where p.key = s.key limit 1)
    ) k
    order by k.key
    limit _limit
  );
end
$$;
