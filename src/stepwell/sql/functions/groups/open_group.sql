-- Open a group: jobs are added to it by stepwell.add_members, and stepwell.seal_group says that these are all. The
-- options are those of its callback, as in stepwell.enqueue_many, with one element each; _tasks null: it has none. The
-- callback is blocked until all members have ended. Then the argument _parameter becomes a summary of the group, and a
-- delay begins. If the unique key of the callback is taken, no group is opened (SW005). _keep: for how many seconds
-- the group is kept after its end. Returns the id of the callback.
create or replace function stepwell.open_group(
  _id uuid,
  _keep double precision default 2592000,
  _parameter text default null,
  _tasks text[] default null,
  _args text[] default null,
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null,
  _owners text[] default null,
  _policies text[] default null
) returns uuid
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _then_id uuid := case when _tasks is not null then stepwell.uuid7() end;
  _holders uuid[];
begin
  if _id is null or (_keep between 0 and 3155760000 or _keep = 'infinity') is not true
    or length(_parameter) not between 1 and 200 or _tasks is not null and cardinality(_args) is distinct from 1
  then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a group needs an id, a _keep of 0 to 100 years or infinity, and at most one callback with a '
        'parameter of 1 to 200 characters';
  end if;
  if _then_id is not null then
    perform stepwell.check_options(
      _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners
    );
    if _policies is not null then
      perform stepwell.check_policies(_policies, 1);
    end if;
  end if;
  insert into stepwell.job_group (id, created_at, keep, then_id, then_task, then_parameter, then_delay)
  values (_id, _now, _keep, _then_id, _tasks[1], _parameter, _delays[1])
  on conflict (id) do nothing;
  if not found then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('stepwell: there is a group %s already: give each group an id of its own', _id);
  end if;
  if _then_id is not null then
    _holders := stepwell.take_keys_of(_now, array[_then_id], _policies);
    if _holders is not null then
      raise exception using errcode = 'SW005', detail = _holders[1],
        message = format('stepwell: job %s has the unique key of the callback', _holders[1]);
    end if;
    perform stepwell.insert_jobs(
      _now, array[_then_id], _tasks, _args, _queues, _priorities, null, _run_ats, _metadata, _max_attempts, _owners,
      _policies, array[row(null, null, null, null, true)::stepwell.origin]
    );
  end if;
  return _then_id;
end
$$;
