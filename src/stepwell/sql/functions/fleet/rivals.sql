-- The other owners whose live workers may claim the same jobs as this worker: both know the task and claim from the
-- same queue, and at least one of the apps was not given a name. Returns each with the tasks that they share.
create or replace function stepwell.rivals(_worker_id uuid) returns table (owner text, tasks text[])
language plpgsql stable security definer
as $$
begin
  return query
    select o.owner, array_agg(distinct t.name order by t.name)
    from stepwell.worker m
    join stepwell.worker o
      on o.owner <> m.owner and o.lease_until > stepwell.now() and (m.named and o.named) is not true
    cross join lateral jsonb_object_keys(m.tasks) as t (name)
    where m.id = _worker_id and o.tasks ? t.name
      and exists (
        select from unnest(m.queues) as mine (name), unnest(o.queues) as theirs (name)
        where mine.name = theirs.name
          or (right(mine.name, 1) = '*' and starts_with(theirs.name, left(mine.name, -1)))
          or (right(theirs.name, 1) = '*' and starts_with(mine.name, left(theirs.name, -1)))
      )
    group by o.owner;
end
$$;
