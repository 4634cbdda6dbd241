-- The names of the queues that have ready jobs, are not paused, and match one of these patterns: a name, or a prefix
-- followed by *. The function walks along the claim index from queue to queue: the cost does not grow with backlogs.
create or replace function stepwell.ready_queues(_patterns text[]) returns setof text
language plpgsql stable security definer
as $$
declare
  _names jsonb;
  _beginnings jsonb;
  _lengths integer[];
begin
  -- As keys of an object, because a search in an array is linear.
  select jsonb_object_agg(p.pattern, null),
    jsonb_object_agg(left(p.pattern, -1), null) filter (where right(p.pattern, 1) = '*'),
    array_agg(distinct length(p.pattern) - 1) filter (where right(p.pattern, 1) = '*')
  into _names, _beginnings, _lengths
  from unnest(_patterns) as p (pattern)
  where p.pattern is not null;
  return query
    with recursive found as (
      (select j.queue as name from stepwell.job j where j.state = 'ready' order by j.queue limit 1)
      union all
      select (
        select j.queue from stepwell.job j
        where j.state = 'ready' and j.queue > f.name
        order by j.queue limit 1
      )
      from found f
      where f.name is not null
    )
    select f.name from found f
    where (
        _names ? f.name
        or exists (select from unnest(_lengths) as l (length) where _beginnings ? left(f.name, l.length))
      )
      and not exists (
        select from stepwell.control c where c.action = 'pause' and c.scope = 'queue' and c.name = f.name
      );
end
$$;
