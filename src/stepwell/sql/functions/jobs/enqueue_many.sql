-- Put jobs in; returns their ids in the order of the items. Ids grow along the batch, so jobs of one batch
-- that are equal in rank and time run in the order given.
-- An option is null (the default for all), one element (the same for all) or one element per item. Only workers of an app
-- that was given the name _owners[k] run a job; null: any worker that knows the task. _policies[k] is how that job is tried,
-- timed and kept, as JSON; null: as its task.
create or replace function stepwell.enqueue_many(
  _tasks text[],
  _args text[],
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null,
  _owners text[] default null,
  _policies text[] default null
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _count integer := coalesce(cardinality(_args), 0);
  _task text := case when cardinality(_tasks) = 1 then _tasks[1] end;
  _one_queue text := case when cardinality(_queues) = 1 then _queues[1] end;
  _priority integer := case when cardinality(_priorities) = 1 then _priorities[1] end;
  _delay double precision := case when cardinality(_delays) = 1 then _delays[1] end;
  _run_at timestamptz := case when cardinality(_run_ats) = 1 then _run_ats[1] end;
  _one_metadata text := case when cardinality(_metadata) = 1 then _metadata[1] end;
  _owner text := case when cardinality(_owners) = 1 then _owners[1] end;
  _one_policy text := case when cardinality(_policies) = 1 then _policies[1] end;
  _max integer := case when cardinality(_max_attempts) = 1 then _max_attempts[1] end;
  _ids uuid[];
  _places stepwell.place[];
  _due_in double precision;
begin
  -- What most calls bring, one plain job, is seen to be good at a glance, by some of the rules of check_options.
  if (_count = 1 and length(_task) between 1 and 200 and starts_with(_args[1], '{') and strpos(_args[1], E'\\u0000') = 0
    and octet_length(_args[1]) <= 65536
    and (_queues is null or length(_one_queue) between 1 and 200)
    and (_priorities is null or _priority between -32767 and 32767)
    and _delays is null and _run_ats is null and _metadata is null and _max_attempts is null
    and (_owners is null or length(_owner) between 1 and 200)) is not true
  then
    perform stepwell.check_options(
      _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners
    );
  end if;
  if _policies is not null then
    perform stepwell.check_policies(_policies, _count);
  end if;
  if _count = 0 then
    return '{}';
  end if;

  _ids := case when _count = 1 then array[stepwell.uuid7()] else stepwell.uuids7(_count) end;
  if _delays is null and _run_ats is null then
    if cardinality(_queues) > 1 or cardinality(_priorities) > 1 then
      _places := array(
        select distinct row(coalesce(u.queue, _one_queue, 'default'), -coalesce(u.priority, _priority, 0), _now)::stepwell.place
        from unnest(_ids, _queues, _priorities) as u (id, queue, priority)
      );
    else
      _places := array[row(coalesce(_one_queue, 'default'), -coalesce(_priority, 0), _now)::stepwell.place];
    end if;
  else
    _run_ats := array(
      select coalesce(_now + coalesce(u.delay, _delay) * interval '1 second', u.run_at, _run_at, _now)
      from unnest(_ids, _delays, _run_ats) with ordinality as u (id, delay, run_at, n)
      order by u.n
    );
    select array_agg(row(coalesce(u.queue, _one_queue, 'default'), -coalesce(u.priority, _priority, 0), u.run_at)::stepwell.place)
        filter (where u.run_at <= _now),
      extract(epoch from min(u.run_at) filter (where u.run_at > _now) - _now)
    into _places, _due_in
    from unnest(_run_ats, _queues, _priorities) as u (run_at, queue, priority);
  end if;

  insert into stepwell.job (id, run_at, enqueued_at, max_attempts, rank, state, task, queue, args, metadata, owner,
    policy)
  select u.id, coalesce(u.run_at, _now), _now, coalesce(u.max_attempts, _max), -coalesce(u.priority, _priority, 0),
    case when u.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
    coalesce(u.task, _task), coalesce(u.queue, _one_queue, 'default'), u.args::json,
    coalesce(u.metadata, _one_metadata)::jsonb, coalesce(u.owner, _owner), coalesce(u.policy, _one_policy)::json
  from unnest(_ids, _tasks, _queues, _priorities, _run_ats, _args, _metadata, _max_attempts, _owners, _policies)
    as u (id, task, queue, priority, run_at, args, metadata, max_attempts, owner, policy);
  perform stepwell.notify_ready(_places, _due_in);
  return _ids;
end
$$;
