-- Enqueue jobs as members of a group that is not sealed yet, with options as in stepwell.enqueue_many. Returns how many
-- jobs were added: a call whose unique key is taken is none of them. It leaves the job that has the key as it is, or
-- changes it (stepwell.replace_taken), or refuses all of them (SW005), as the call says.
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
  _holders uuid[];
  _admissions json[];
  _refused record;
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
  _ids := stepwell.uuids7(_count);
  _holders := stepwell.take_keys_of(_now, _ids, _policies);
  if _holders is not null then
    _admissions := array(
      select coalesce(u.policy, case when cardinality(_policies) = 1 then _policies[1] end)::json -> 'admission'
      from unnest(_ids, _policies) with ordinality as u (id, policy, n)
      order by u.n
    );
    select u.holder, u.admission #>> '{unique,key}' as key into _refused
    from unnest(_holders, _admissions) with ordinality as u (holder, admission, n)
    where u.holder is not null and u.admission #>> '{unique,conflict}' = 'raise'
    order by u.n
    limit 1;
    if found then
      raise exception using errcode = 'SW005', detail = _refused.holder,
        message = case
          -- The job would be an earlier call, which is refused, too.
          when _refused.holder = any (_ids) then
            format('stepwell: two calls of the group have the unique key %s', _refused.key)
          else format('stepwell: job %s has the unique key %s', _refused.holder, _refused.key)
        end;
    end if;
    _ids := array(
      select case when u.holder is null then u.id end from unnest(_ids, _holders) with ordinality as u (id, holder, n)
      order by u.n
    );
  end if;
  perform stepwell.insert_jobs(
    _now, _ids, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners, _policies,
    _group_id => _id
  );
  if _holders is not null then
    -- After the insert: the job that has the key may be an earlier member.
    perform stepwell.replace_taken(
      _now, _holders, _admissions, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts,
      _owners, _policies
    );
  end if;
  _ids := array_remove(_ids, null);
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
