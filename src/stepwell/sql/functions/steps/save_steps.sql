-- Save steps of running jobs, each once: the first write wins. The jobs stay locked, so the fence holds until commit.
-- An option is null (no step has it), has one element (the same for all) or one element per step. Values over 64 KB are
-- flagged in _large and stored apart. A step flagged in _replaced overwrites the saved one.
-- Returns the ids of the refused jobs and the time, which is also the value of steps of kind now.
create or replace function stepwell.save_steps(
  _ids uuid[],
  _epochs integer[],
  _keys text[],
  _ns integer[],
  _kinds text[],
  _values text[],
  _errors text[] default null,
  _fingerprints integer[] default null,
  _seconds double precision[] default null,
  _undos boolean[] default null,
  _large boolean[] default null,
  _replaced boolean[] default null,
  out refused uuid[],
  out saved_at timestamptz
)
language plpgsql volatile security definer
as $$
declare
  _kind text := case when cardinality(_kinds) = 1 then _kinds[array_lower(_kinds, 1)] end;
  _undo boolean := coalesce(case when cardinality(_undos) = 1 then _undos[array_lower(_undos, 1)] end, false);
  _held uuid[];
  _held_epochs integer[];
  _plain uuid[];
  _inserted integer;
begin
  if (
    cardinality(_keys) = cardinality(_ids) and array_position(_keys, null) is null
    and cardinality(_ns) = cardinality(_ids) and array_position(_ns, null) is null
    and cardinality(_kinds) in (1, cardinality(_ids)) and array_position(_kinds, null) is null
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each step needs a key, a position and a kind';
  end if;
  if strpos(concat(array_to_string(_values, ''), array_to_string(_errors, '')), E'\\u') > 0 then
    perform stepwell.check_values(_values || _errors);
  end if;
  if pg_column_size(_values) > 65536 then
    perform stepwell.check_sizes('step', _values);
  end if;
  if pg_column_size(_errors) > 65536 then
    perform stepwell.check_sizes('step', _errors);
  end if;
  saved_at := stepwell.now();
  -- A shared lock would deadlock: the first step of a job updates its row, and two holders would wait for each other.
  with held as materialized (
    select j.id, j.epoch, j.durable from stepwell.job j
    where j.id = any (_ids) and j.worker_id is not null
    order by j.id
    for no key update
  )
  select array_agg(h.id), array_agg(h.epoch), array_agg(h.id) filter (where not h.durable)
  into _held, _held_epochs, _plain
  from held h;
  if _plain is not null then
    update stepwell.job j set durable = true where j.id = any (_plain);
  end if;
  if _replaced is not null then
    delete from stepwell.step s
    using (
      select u.id, u.key
      from unnest(_ids, _epochs, _keys, _replaced) as u (id, epoch, key, replaced)
      join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
      where u.replaced
    ) r
    where s.job_id = any (_ids) and s.job_id = r.id and s.key = r.key;
    delete from stepwell.large_value v
    using unnest(_ids, _epochs, _keys, _replaced) as u (id, epoch, key, replaced)
    join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where u.replaced and v.job_id = any (_held) and v.job_id = u.id and v.key = u.key;
  end if;
  insert into stepwell.step (job_id, saved_at, seconds, n, epoch, fingerprint, undo, large, kind, key, value, error)
  select u.id, save_steps.saved_at, u.seconds, u.n, u.epoch, u.fingerprint, coalesce(u.undo, _undo),
    coalesce(u.large, false), coalesce(u.kind, _kind), u.key,
    case
      when u.large then null
      when coalesce(u.kind, _kind) = 'now' then to_json(save_steps.saved_at)
      else u.value::json
    end,
    u.error::json
  from unnest(_ids, _epochs, _keys, _ns, _kinds, _values, _errors, _fingerprints, _seconds, _undos, _large)
    as u (id, epoch, key, n, kind, value, error, fingerprint, seconds, undo, large)
  join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
  on conflict (job_id, key) do nothing;
  get diagnostics _inserted = row_count;
  if _large is not null then
    insert into stepwell.large_value (job_id, expires_at, key, value)
    select u.id, 'infinity', u.key, u.value::json
    from unnest(_ids, _epochs, _keys, _values, _large) as u (id, epoch, key, value, large)
    join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where u.large
      -- If a small value was saved before, it stays, and nothing would ever delete this large one.
      and exists (
        select from stepwell.step s where s.job_id = any (_held) and s.job_id = u.id and s.key = u.key and s.large
      )
    on conflict (job_id, key) do nothing;
  end if;
  refused := '{}';
  if _inserted = cardinality(_ids) then
    return;
  end if;
  -- Some jobs were refused, or some steps had been saved before.
  refused := array(
    select distinct u.id from unnest(_ids, _epochs) as u (id, epoch)
    left join unnest(_held, _held_epochs) as h (id, epoch) on h.id = u.id and h.epoch = u.epoch
    where h.id is null
  );
end
$$;
