-- Enqueue jobs of which some have a unique key, with the parameters of stepwell.enqueue_many. ids has the new job of
-- each item or, if its key is taken, the job that has it; inserted tells them apart. A conflict has the action that the
-- item names: ignore and throttle leave the job as it is; replace and reschedule change it (stepwell.replace_taken);
-- raise refuses the whole batch with SW005 and the job as detail. With _raise false the caller handles it.
-- Of items with the same key, the first is enqueued, and the others are in conflict with it.
-- Items that have nothing but a key may come with _keys[k] in place of a policy: most lists do, and cost less so.
create or replace function stepwell.enqueue_unique(
  _tasks text[],
  _args text[],
  _queues text[] default null,
  _priorities integer[] default null,
  _delays double precision[] default null,
  _run_ats timestamptz[] default null,
  _metadata text[] default null,
  _max_attempts integer[] default null,
  _owners text[] default null,
  _policies text[] default null,
  _raise boolean default true,
  _keys text[] default null,
  out ids uuid[],
  out inserted boolean[]
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _count integer := coalesce(cardinality(_args), 0);
  _policy text := case when cardinality(_policies) = 1 then _policies[1] end;
  _admissions json[];
  _rests text[];
  _text text;
  _lines stepwell.line[];
  _holders uuid[];
  _new uuid[];
  _plain record;
  _refused record;
begin
  perform stepwell.check_options(
    _now, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners
  );
  if _keys is not null then
    if (
      _policies is null and cardinality(_keys) = _count and array_lower(_keys, 1) = 1 and array_ndims(_keys) = 1
      -- Bytes are cheaper to count than characters, and most keys are short in both.
      and not exists (
        select from unnest(_keys) as k (key)
        where (octet_length(k.key) between 1 and 200 or length(k.key) between 1 and 200) is not true
      )
    ) is not true and _count > 0 then
      raise exception using errcode = 'invalid_parameter_value',
        message = 'stepwell: _keys needs a unique key of 1 to 200 characters for each item, and no _policies';
    end if;
    ids := stepwell.uuids7(_count);
    _plain := stepwell.take_plain_keys(_now, ids, _keys);
    if _plain.holders is not null then
      ids := _plain.holders;
      inserted := array_fill(false, array[_count]);
      return;
    end if;
    if _plain.all_new then
      perform stepwell.insert_jobs(
        _now, ids, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners,
        _keys => _keys
      );
      inserted := array_fill(true, array[_count]);
      return;
    end if;
    _policies := array(
      select '{"admission":{"unique":{"key":' || to_json(k.key)::text || '}}}' from unnest(_keys) as k (key)
    );
  end if;
  -- Most policies are nothing but an admission, and have nothing that check_policies looks for.
  if cardinality(_policies) not in (1, _count) or array_lower(_policies, 1) <> 1 or array_ndims(_policies) <> 1
    or exists (
      select from unnest(_policies) as p (text)
      where octet_length(p.text) > 20000 or not starts_with(p.text, '{"admission":')
    )
  then
    perform stepwell.check_policies(_policies, _count);
  end if;
  ids := '{}';
  inserted := '{}';
  if _count = 0 then
    return;
  end if;
  with parsed as materialized (
    select p.policy, p.policy::json -> 'admission' as admission
    from (select coalesce(u.policy, _policy) as policy from unnest(_args, _policies) as u (args, policy) offset 0) p
  )
  select array_agg(p.admission),
    array_agg(
      case
        -- Most policies have nothing else. An element of json has the text of the whole.
        when p.admission is null then p.policy
        when octet_length(p.policy) > octet_length(p.admission::text) + 14
        then nullif((p.policy::jsonb - 'admission')::text, '{}')
      end
    )
  into _admissions, _rests
  from parsed p;
  _rests := case when array_remove(_rests, null) <> '{}' then _rests end;
  if _rests is not null then
    perform stepwell.check_policies(_rests, _count);
  end if;
  -- Only a limit, a rate or a fair key gives a job a place in a line. Their names may be written with escapes.
  _text := array_to_string(_policies, '');
  if strpos(_text, '"limits"') + strpos(_text, '"rates"') + strpos(_text, '"fair"') + strpos(_text, '\u00') = 0 then
    _lines := array(select row(a.admission, null, null, null)::stepwell.line from unnest(_admissions) as a (admission));
  end if;
  if exists (
    select from unnest(_admissions) as a (admission)
    where a.admission is not null and case
      when _lines is null then not stepwell.is_admission(a.admission)
      else (
        length(a.admission #>> '{unique,key}') between 1 and 200
        and stepwell.is_conflict_action(a.admission #>> '{unique,conflict}')
      ) is not true
    end
  ) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: the admission in a policy is not valid';
  end if;
  ids := stepwell.uuids7(_count);
  _holders := stepwell.take_keys(_now, ids, _admissions);
  if _holders is null then
    perform stepwell.insert_jobs(
      _now, ids, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners,
      case when _lines is null then _policies else _rests end, null, _lines
    );
    inserted := array_fill(true, array[_count]);
    return;
  end if;
  if _raise then
    select u.holder, u.admission #>> '{unique,key}' as key into _refused
    from unnest(_holders, _admissions) with ordinality as u (holder, admission, n)
    where u.holder is not null and u.admission #>> '{unique,conflict}' = 'raise'
    order by u.n
    limit 1;
    if found then
      raise exception using errcode = 'SW005', detail = _refused.holder,
        message = case
          -- The job would be an item before, which is refused, too.
          when _refused.holder = any (ids) then
            format('stepwell: two items of the list have the unique key %s', _refused.key)
          else format('stepwell: job %s has the unique key %s', _refused.holder, _refused.key)
        end;
    end if;
  end if;
  select array_agg(case when u.holder is null then u.id end order by u.n),
    array_agg(coalesce(u.holder, u.id) order by u.n), array_agg(u.holder is null order by u.n)
  into _new, ids, inserted
  from unnest(ids, _holders) with ordinality as u (id, holder, n);
  if true = any (inserted) then
    perform stepwell.insert_jobs(
      _now, _new, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts, _owners,
      case when _lines is null then _policies else _rests end, null, _lines
    );
  end if;
  perform stepwell.replace_taken(
    _now, _holders, _admissions, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts,
    _owners, _policies
  );
end
$$;
