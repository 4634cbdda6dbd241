-- Emit an event, from any language: select stepwell.emit('shipped', '7', '{"by": "mule"}'). Every job that waits for it
-- continues after the commit. A job that begins to wait later finds the event while it is kept. Returns its id.
create or replace function stepwell.emit(
  name text,
  key text default null,
  value json default null,
  keep interval default '30 days'
) returns bigint
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _large boolean := coalesce(octet_length(value::text) > 65536, false);
  _id bigint;
begin
  -- The commit trigger looks for waiting jobs, and a snapshot of the whole transaction would miss some.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = 'stepwell: emit and send need a transaction at read committed: use another connection, or another job';
  end if;
  if name is null or length(name) not between 1 and 200 or length(key) > 200 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: an event''s name must have 1 to 200 characters, its key at most 200';
  end if;
  if keep is null or keep < interval '0' then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: keep must be 0 or more';
  end if;
  if _large then
    perform stepwell.check_sizes('event', array[value::text]);
  end if;
  perform stepwell.check_value(value);
  insert into stepwell.event (emitted_at, expires_at, large, name, key, value)
  values (_now, _now + keep, _large, emit.name, coalesce(emit.key, ''), emit.value)
  returning id into _id;
  return _id;
end
$$;
