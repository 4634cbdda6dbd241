-- Create or change schedules of an owner, by name, one element for each. If the timing is unchanged, so is the next
-- tick: ticks missed while no worker ran are still due. Otherwise it is _nexts[k], computed from stepwell.now().
-- _declared: the schedules are declared in code. A declared schedule cannot be changed by a call without it. _named:
-- the jobs belong to the owner; otherwise any worker that knows the task runs them. _metadata, _max_attempts and
-- _policies are options of the jobs, as in stepwell.enqueue_many, one element for each or null. _regained_by: a worker
-- that had lost its lease. Then only missing schedules are created, because newer code may have changed the others, and
-- none that newer code has removed: a live worker of the owner that has started later, and shares a task with this one,
-- no longer has it. (A service that took the owner's name by accident shares no task.)
create or replace function stepwell.put_schedules(
  _owner text,
  _declared boolean,
  _names text[],
  _tasks text[],
  _args text[],
  _queues text[],
  _priorities integer[],
  _crons text[],
  _tzs text[],
  _everies double precision[],
  _overlaps text[],
  _catchups integer[],
  _jitters double precision[],
  _nexts timestamptz[],
  _named boolean default false,
  _metadata text[] default null,
  _max_attempts integer[] default null,
  _policies text[] default null,
  _regained_by uuid default null
) returns void
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _in_code text;
  _wrong text;
  _removed text[] := '{}';
begin
  select format(
    'stepwell: schedule %s of %s is not valid: owner, name, task and queue must have 1 to 200 characters, cron and tz '
    'at most 200, and an interval or jitter at most 100 years',
    quote_literal(left(u.name, 60)), quote_literal(left(_owner, 60))
  )
  into _wrong
  from unnest(_names, _tasks, _queues, _crons, _tzs, _everies, _jitters)
    as u (name, task, queue, cron, tz, every, jitter)
  where (
    length(_owner) between 1 and 200 and length(u.name) between 1 and 200 and length(u.task) between 1 and 200
    and length(u.queue) between 1 and 200
  ) is not true
    or length(u.cron) > 200 or length(u.tz) > 200 or u.every > 3155760000 or u.jitter > 3155760000
  limit 1;
  if found then
    raise exception using errcode = 'invalid_parameter_value', message = _wrong;
  end if;
  if exists (select from unnest(_metadata) as m (text) where left(ltrim(m.text, E' \t\r\n'), 1) <> '{') then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: metadata must be a JSON object';
  end if;
  -- jsonb writes numbers out in full.
  perform stepwell.check_sizes('metadata', array(select m.text::jsonb::text from unnest(_metadata) as m (text)));
  if _policies is not null then
    perform stepwell.check_policies(_policies, cardinality(_names));
  end if;
  perform stepwell.check_sizes('args', _args);
  -- In the order in which stepwell.tick locks them.
  perform from stepwell.schedule s where s.owner = _owner and s.name = any (_names) order by s.id for update;
  if not _declared then
    select s.name into _in_code from stepwell.schedule s
    where s.owner = _owner and s.name = any (_names) and s.declared limit 1;
    if found then
      raise exception using errcode = 'SW002',
        message = format(
          'stepwell: schedule %s of %s is declared in code: change it there, or give this one another name',
          _in_code, _owner
        );
    end if;
  end if;
  if _regained_by is not null then
    _removed := array(
      select g.name
      from (
        select distinct w.schedules
        from stepwell.worker w
        join stepwell.worker m on m.owner = w.owner and m.started_at < w.started_at
        where m.id = _regained_by and m.owner = _owner and w.lease_until > _now
          and w.tasks ?| array(select t.name from jsonb_object_keys(m.tasks) as t (name))
      ) c
      cross join lateral (
        select n.name from unnest(_names) as n (name) except select n.name from unnest(c.schedules) as n (name)
      ) g
    );
  end if;
  insert into stepwell.schedule as s (id, owner, name, task, args, queue, rank, cron, tz, every, overlap, catchup,
    jitter, declared, declared_at, created_at, next_tick_at, named, metadata, max_attempts, policy)
  select stepwell.uuid7(), _owner, u.name, u.task, u.args::json, u.queue, -u.priority, u.cron, u.tz, u.every, u.overlap,
    u.catchup, u.jitter, _declared, _now, _now, u.next, _named, u.metadata::jsonb, u.max_attempts, u.policy::json
  from unnest(_names, _tasks, _args, _queues, _priorities, _crons, _tzs, _everies, _overlaps, _catchups, _jitters,
      _nexts, _metadata, _max_attempts, _policies)
    as u (name, task, args, queue, priority, cron, tz, every, overlap, catchup, jitter, next, metadata,
      max_attempts, policy)
  where u.name not in (select r.name from unnest(_removed) as r (name))
  order by u.name
  on conflict on constraint schedule_name do update
  set task = excluded.task, args = excluded.args, queue = excluded.queue, rank = excluded.rank, cron = excluded.cron,
    tz = excluded.tz, every = excluded.every, overlap = excluded.overlap, catchup = excluded.catchup,
    jitter = excluded.jitter, named = excluded.named, metadata = excluded.metadata,
    max_attempts = excluded.max_attempts, policy = excluded.policy, declared = excluded.declared,
    declared_at = excluded.declared_at,
    version = s.version + case
      when (s.task, s.args::text, s.queue, s.rank, s.cron, s.tz, s.every, s.overlap, s.catchup, s.jitter, s.declared,
          s.metadata, s.max_attempts, s.policy::text)
        is not distinct from (excluded.task, excluded.args::text, excluded.queue, excluded.rank, excluded.cron,
          excluded.tz, excluded.every, excluded.overlap, excluded.catchup, excluded.jitter, excluded.declared,
          excluded.metadata, excluded.max_attempts, excluded.policy::text) then 0
      else 1
    end,
    next_tick_at = case
      when s.paused_at is not null then null
      when (s.cron, s.tz, s.every) is not distinct from (excluded.cron, excluded.tz, excluded.every)
        then coalesce(s.next_tick_at, excluded.next_tick_at)
      else excluded.next_tick_at
    end
  where _regained_by is null;
  perform stepwell.notify('stepwell_tick', '');
exception when not_null_violation or check_violation or cardinality_violation then
  raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: a schedule is not valid: ' || sqlerrm;
end
$$;
