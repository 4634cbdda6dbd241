-- The settings of a task, or of one of its jobs (_job), that are in effect, each with its source. Of several that are
-- given, the first of enqueue, task, queue and app counts; if none is given, the default. A limit or rate by key that
-- was set at run time has the source "run time". The settings of the code are _settings, or else those that the newest
-- live worker has registered which knows the task; no rows: none knows it. A job that has ended has the settings with
-- which it would be retried.
create or replace function stepwell.task_settings(_task text, _settings jsonb default null, _job uuid default null)
returns table (name text, value jsonb, source text)
language plpgsql stable security definer
as $$
declare
  _names constant text[] :=
    '{queue,priority,retry,timeout,timeout_grace,keep,keep_failed,unique,limit,rate,fair,batch,batch_wait,drift,logs,'
    'maintainer,runbook}';
  _found record;
  _own jsonb := '{}';
  _queue text;
begin
  if _settings is null then
    select w.settings -> _task into _settings
    from stepwell.worker w
    where w.lease_until > stepwell.now() and w.settings ? _task
    order by w.number desc
    limit 1;
  end if;
  if jsonb_typeof(_settings) is distinct from 'object' then
    return;
  end if;
  if _job is not null then
    select j.queue, j.priority, j.max_attempts, coalesce(j.policy::jsonb, '{}') as policy, a.admission into _found
    from stepwell.jobs j
    cross join lateral (
      select coalesce(
        (select l.admission from stepwell.job l where l.id = j.id),
        (select h.admission from stepwell.history h where h.id = j.id limit 1)
      )::jsonb as admission
    ) a
    where j.id = _job and j.task = _task;
    if not found then
      raise exception using errcode = 'SW002',
        message = format('stepwell: there is no job %s of the task %s', _job, _task);
    end if;
    _own := jsonb_strip_nulls(jsonb_build_object(
      'queue', nullif(to_jsonb(_found.queue), _settings #> '{queue,value}'),
      'priority', nullif(to_jsonb(_found.priority), _settings #> '{priority,value}'),
      'timeout', _found.policy -> 'timeout', 'keep', _found.policy -> 'keep',
      'keep_failed', _found.policy -> 'keep_failed',
      -- A key that is none of its task.
      'unique', case
        when jsonb_typeof(_settings #> '{unique,value}') is distinct from 'object' then _found.admission -> 'unique'
      end,
      'retry', case
        when _found.policy ? 'retry' or _found.max_attempts is not null then
          coalesce(_settings #> '{retry,value}', '{}') || coalesce(_found.policy -> 'retry', '{}')
          || coalesce(jsonb_build_object('max_attempts', _found.max_attempts), '{}')
      end
    ));
    if _found.max_attempts is null and _own ? 'retry' then
      _own := jsonb_set(_own, '{retry,max_attempts}', coalesce(_settings #> '{retry,value,max_attempts}', 'null'));
    end if;
  end if;
  _queue := coalesce(_own ->> 'queue', _settings #>> '{queue,value}');
  return query
    with setting as (
      select n.name, n.n, 0::bigint as k, s.setting -> 'value' as value,
        coalesce(s.setting ->> 'source', 'default') as source
      from unnest(_names) with ordinality as n (name, n)
      cross join lateral (select _settings -> n.name as setting) s
      where n.name <> all ('{limit,rate}')
      union all
      -- One row for each limit and rate.
      select n.name, n.n, r.k,
        case
          when n.name = 'limit' and s.most is not null then (r.rule - 'source') || jsonb_build_object('most', s.most)
          when n.name = 'rate' and s.spacing is not null then
            r.rule || jsonb_build_object(
              'count', 1, 'per', s.spacing, 'burst', s.burst, 'smooth', coalesce(s.late > 0, false)
            )
          else r.rule - 'source'
        end,
        case
          when n.name = 'limit' and s.most is not null or n.name = 'rate' and s.spacing is not null then 'run time'
          else coalesce(r.rule ->> 'source', 'task')
        end
      from unnest(_names) with ordinality as n (name, n)
      cross join lateral jsonb_array_elements(
        case
          when jsonb_typeof(_settings #> array[n.name, 'value']) = 'array' then _settings #> array[n.name, 'value']
          else '[]'
        end
      ) with ordinality as r (rule, k)
      left join stepwell.key_setting s on s.key = coalesce(r.rule ->> 'key', _task)
      where n.name = any ('{limit,rate}')
      union all
      select q.name, 100 + q.n, 0, q.value, 'queue'
      from (
        select 'queue_limit' as name, 1 as n, to_jsonb(s.most) as value
        from stepwell.queue_setting s where s.name = _queue
        union all
        select 'queue_rate', 2, jsonb_build_object(
          'count', 1, 'per', s.spacing, 'burst', s.burst, 'smooth', coalesce(s.late > 0, false)
        )
        from stepwell.queue_setting s where s.name = _queue and s.spacing is not null
        union all
        select 'paused', 3, 'true'
        from stepwell.control c where c.action = 'pause' and c.scope = 'queue' and c.name = _queue
      ) q
      where q.value is not null
    )
    select s.name,
      case
        when _own ? s.name then _own -> s.name
        when s.source in ('app', 'default') and s.name = 'keep' and k.keep is not null then
          case when k.keep = 'infinity' then '"forever"' else to_jsonb(k.keep) end
        when s.source in ('app', 'default') and s.name = 'keep_failed' and k.keep_failed is not null then
          case when k.keep_failed = 'infinity' then '"forever"' else to_jsonb(k.keep_failed) end
        else nullif(s.value, 'null')
      end,
      case
        when _own ? s.name then 'enqueue'
        when s.source in ('app', 'default') and s.name = 'keep' and k.keep is not null
          or s.source in ('app', 'default') and s.name = 'keep_failed' and k.keep_failed is not null then 'queue'
        else s.source
      end
    from setting s
    left join stepwell.queue_keep k on k.name = _queue
    order by s.n, s.k;
end
$$;
