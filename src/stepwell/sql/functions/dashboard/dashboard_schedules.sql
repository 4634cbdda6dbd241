-- The schedules, in the order of their owners and names: those after _after_owner and _after_name, at most _limit, each
-- with its newest _ticks ticks and the state of their jobs. next has the owner and name to continue after; null: there
-- are no others.
create or replace function stepwell.dashboard_schedules(
  _limit integer default 200,
  _owner text default null,
  _name text default null,
  _ticks integer default 10,
  _after_owner text default null,
  _after_name text default null
)
returns json
language plpgsql stable security definer
as $$
declare
  _page integer := least(greatest(coalesce(_limit, 200), 1), 1000);
  _ids uuid[] := array(
    select s.id from stepwell.schedule s
    where (_owner is null or s.owner = _owner) and (_name is null or s.name = _name)
      and (s.owner, s.name) > (coalesce(_after_owner, ''), coalesce(_after_name, ''))
    order by s.owner, s.name
    limit _page + 1
  );
begin
  return json_build_object(
    'schedules', coalesce(
      (
        select json_agg(
          json_build_object(
            'id', s.id, 'owner', s.owner, 'name', s.name, 'task', s.task,
            'args', case when octet_length(s.args::text) <= 65536 then s.args::text end,
            'queue', s.queue, 'priority', s.priority, 'cron', s.cron, 'tz', s.tz, 'every', s.every,
            'overlap', s.overlap, 'catchup', s.catchup, 'jitter', s.jitter, 'declared', s.declared,
            'created_at', s.created_at, 'paused_at', s.paused_at, 'next_run_at', s.next_run_at,
            'last_run_at', s.last_run_at, 'last_job_id', s.last_job_id, 'live', s.live,
            'ticks', coalesce(
              (
                select json_agg(
                  json_build_object(
                    'at', t.at, 'job_id', t.job_id, 'skipped', t.skipped, 'triggered', t.triggered,
                    'state', (select j.state from stepwell.jobs j where j.id = t.job_id)
                  )
                  order by t.at desc
                )
                from (
                  select t.at, t.job_id, t.skipped, t.triggered from stepwell.tick t
                  where t.schedule_id = s.id
                  order by t.at desc
                  limit least(greatest(coalesce(_ticks, 10), 0), 100)
                ) t
              ),
              '[]'
            )
          )
          order by s.owner, s.name
        )
        from stepwell.schedules s
        where s.id = any (_ids[:_page])
      ),
      '[]'
    ),
    'next', (
      select json_build_object('owner', s.owner, 'name', s.name) from stepwell.schedule s
      where s.id = _ids[_page] and cardinality(_ids) > _page
    )
  );
end
$$;
