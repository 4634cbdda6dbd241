-- Enqueue jobs and return their ids in the order of the items. Ids grow along the batch, so jobs of one batch that have
-- the same rank and time run in the order given. An option is null (the default for all), has one element (the same for
-- all) or one element per item. A job with an owner runs only on workers of the app with that name; null: on any worker
-- that knows the task. _policies[k] is a JSON object: retry, timeout and retention of the job; null: the task's.
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
as $$
declare
  _now timestamptz := stepwell.now();
  _count integer := coalesce(cardinality(_args), 0);
begin
  -- Most calls bring one plain job. It passes by this short form of the rules of check_options.
  if (_count = 1 and cardinality(_tasks) = 1 and length(_tasks[1]) between 1 and 200 and starts_with(_args[1], '{')
    and strpos(_args[1], E'\\u0000') = 0 and octet_length(_args[1]) <= 65536
    and (_queues is null or cardinality(_queues) = 1 and length(_queues[1]) between 1 and 200)
    and (_priorities is null or cardinality(_priorities) = 1 and _priorities[1] between -32767 and 32767)
    and _delays is null and _run_ats is null and _metadata is null and _max_attempts is null
    and (_owners is null or cardinality(_owners) = 1 and length(_owners[1]) between 1 and 200)) is not true
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
  return stepwell.insert_jobs(
    _now, case when _count = 1 then array[stepwell.uuid7()] else stepwell.uuids7(_count) end, _tasks, _args, _queues,
    _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners, _policies
  );
end
$$;
