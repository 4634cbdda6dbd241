-- Enqueue jobs as members of a group that is not sealed yet, with options as in stepwell.enqueue_many. Returns how many
-- jobs were added: a job whose unique key is taken is none of them.
create or replace function stepwell.add_members(
  _id uuid,
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
) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _count integer := coalesce(cardinality(_args), 0);
  _ids uuid[];
begin
  perform stepwell.check_options(
    _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners
  );
  if _policies is not null then
    perform stepwell.check_policies(_policies, _count);
  end if;
  perform from stepwell.job_group g where g.id = _id and g.total is null for no key update;
  if not found then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('stepwell: there is no group %s, or it takes no more members: open it first', _id);
  end if;
  if _count = 0 then
    return 0;
  end if;
  _ids := stepwell.insert_jobs(
    _now, stepwell.uuids7(_count), _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts,
    _owners, _policies, _group_id => _id
  );
  if strpos(array_to_string(_policies, ''), '"unique"') > 0 then
    _ids := array(select j.id from stepwell.job j where j.id = any (_ids) and j.group_id = _id order by j.id);
  end if;
  _count := cardinality(_ids);
  if _count > 0 then
    -- The ids of a batch grow, and all members are between the first and the last: no index on the group is needed.
    update stepwell.job_group g
    set added = g.added + _count, first_id = least(g.first_id, _ids[1]), last_id = greatest(g.last_id, _ids[_count])
    where g.id = _id;
  end if;
  return _count;
end
$$;
