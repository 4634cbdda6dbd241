-- The names of queues and tasks, for completion: at most _limit of each; the keys in the metadata of the newest jobs;
-- and the number of jobs by state.
create or replace function stepwell.dashboard_names(_queue text default null, _limit integer default 200) returns json
language plpgsql stable security definer
as $$
declare
  _most integer := least(greatest(coalesce(_limit, 200), 1), 1000);
begin
  return json_build_object(
    'queues', stepwell.queue_names(null, _most), 'tasks', stepwell.task_names(_most),
    'keys', (
      select coalesce(json_agg(n.key order by n.key), '[]')
      from (
        select distinct left(k.key, 200) as key
        from (
          (select j.metadata from stepwell.job j order by j.id desc limit 200)
          union all
          (select h.metadata from stepwell.history h order by h.id desc limit 200)
        ) m
        cross join lateral jsonb_object_keys(
          case when jsonb_typeof(m.metadata) = 'object' then m.metadata else '{}' end
        ) as k (key)
        limit _most
      ) n
    ),
    'states', stepwell.count_states(_queue)
  );
end
$$;
