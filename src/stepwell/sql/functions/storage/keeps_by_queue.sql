-- How long jobs that end are kept: the setting of the job's queue where _by_queue[k] is true and the queue has one,
-- else _keeps[k]. _states, _keeps and _by_queue have one element for all jobs or one per job. Returns one for each of
-- _ids. Callers call it only if any queue has such a setting.
create or replace function stepwell.keeps_by_queue(
  _ids uuid[],
  _states stepwell.state[],
  _keeps double precision[],
  _by_queue boolean[]
) returns double precision[]
language plpgsql stable
as $$
begin
  return array(
    select coalesce(
      case when coalesce(u.by_queue, cardinality(_by_queue) = 1 and _by_queue[1]) then (
        select case when coalesce(u.state, _states[1]) = 'succeeded' then s.keep else s.keep_failed end
        from stepwell.job j join stepwell.queue_keep s on s.name = j.queue
        where j.id = u.id
      ) end,
      u.keep, _keeps[1]
    )
    from unnest(_ids, _states, _keeps, _by_queue) with ordinality as u (id, state, keep, by_queue, n)
    where u.n <= cardinality(_ids)
    order by u.n
  );
end
$$;
