-- The tasks in use after the name _after, in order, at most _limit: how many live workers know each, its runs in a range
-- of time, as stepwell.stat_names has them, and some of the settings that the newest live worker of an app has
-- registered for it. next: pass it as _after to continue; null: there are no others.
create or replace function stepwell.dashboard_tasks(
  _limit integer default 500,
  _range text default '1h',
  _after text default null
) returns json
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _page integer := least(greatest(coalesce(_limit, 500), 1), 1000);
  _found text[] := stepwell.task_names(_page + 1, _after);
  _names text[] := _found[:_page];
begin
  return json_build_object(
    'tasks', coalesce(
      (
        select json_agg(
          json_build_object(
            'name', n.name, 'workers', coalesce(w.count, 0), 'stats', h.stats, 'paused_at', p.asked_at,
            'queue', s.setting #>> '{queue,value}', 'max_attempts', s.setting #> '{retry,value,max_attempts}',
            'timeout', s.setting #> '{timeout,value}', 'maintainer', left(s.setting #>> '{maintainer,value}', 200),
            'runbook', left(s.setting #>> '{runbook,value}', 2000)
          )
          order by n.name collate "C"
        )
        from unnest(_names) as n (name)
        left join (
          select t.name, count(*) as count
          from stepwell.worker w cross join lateral jsonb_object_keys(w.tasks) as t (name)
          where w.lease_until > _now
          group by t.name
        ) w on w.name = n.name
        left join stepwell.stat_names(_range, true, _names) h on h.name = n.name
        left join (
          -- Of one worker per app: to decode what each of hundreds of workers has registered would take seconds.
          select distinct on (t.name) t.name, t.setting
          from (
            select distinct on (w.owner) w.number, w.settings from stepwell.worker w
            where w.lease_until > _now and w.settings is not null
            order by w.owner, w.number desc
            limit 100
          ) w
          cross join lateral jsonb_each(w.settings) as t (name, setting)
          order by t.name, w.number desc
        ) s on s.name = n.name
        left join stepwell.control p on p.action = 'pause' and p.scope = 'task' and p.name = n.name
      ),
      '[]'
    ),
    'next', case when cardinality(_found) > _page then _found[_page] end
  );
end
$$;
