-- The registered workers, the last registered first: those before the number _before, at most _limit, each with up to
-- ten of the jobs that it runs. next: pass it as _before to continue; null: there are no others.
create or replace function stepwell.dashboard_workers(_limit integer default 100, _before integer default null)
returns json
language plpgsql stable security definer
as $$
declare
  _page integer := least(greatest(coalesce(_limit, 100), 1), 1000);
  _numbers integer[] := array(
    select w.number from stepwell.worker w
    where w.number < coalesce(_before, 2147483647)
    order by w.number desc
    limit _page + 1
  );
begin
  return json_build_object(
    'workers', coalesce(
      (
        select json_agg(
          json_build_object(
            'id', w.id, 'host', w.host, 'pid', w.pid, 'version', w.version, 'queues', w.queues, 'tasks', w.tasks,
            'concurrency', w.concurrency, 'running', w.running, 'started_at', w.started_at, 'renewed_at', w.renewed_at,
            'lease_until', nullif(nullif(w.lease_until, 'infinity'), '-infinity'), 'alive', w.alive, 'owner', w.owner,
            'leads', w.leads, 'paused', w.paused, 'stopping', w.stopping,
            'jobs', coalesce(
              (
                select json_agg(
                  json_build_object('id', j.id, 'task', j.task, 'queue', j.queue, 'claimed_at', j.claimed_at)
                  order by j.claimed_at
                )
                from (
                  select j.id, j.task, j.queue, j.claimed_at from stepwell.job j
                  where j.state = 'running' and j.worker_id = w.id
                  limit 10
                ) j
              ),
              '[]'
            )
          )
          order by n.number desc
        )
        from stepwell.worker n
        cross join lateral (select w.* from stepwell.workers w where w.id = n.id offset 0) w
        where n.number = any (_numbers[:_page])
      ),
      '[]'
    ),
    'next', case when cardinality(_numbers) > _page then _numbers[_page] end
  );
end
$$;
