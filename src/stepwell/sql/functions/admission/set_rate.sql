-- Set a rate at run time, in place of the numbers in the code: at most _count jobs with this key start in _per seconds,
-- with bursts of up to _burst, or else of _count. Nulls remove the setting. It takes effect at once. Both open a rate
-- that a handler has closed (RateLimited). With _smooth there is no burst: the jobs start one at a time.
create or replace function stepwell.set_rate(
  _key text,
  _count integer,
  _per double precision,
  _burst integer default null,
  _smooth boolean default false
)
returns void
language plpgsql volatile security definer
as $$
declare
  _lateness double precision;
  _spacing double precision;
begin
  perform stepwell.check_key(_key);
  perform stepwell.check_rate(_key, _count, _per, _burst, _smooth);
  if _count is not null then
    _lateness := case when _smooth then stepwell.lateness(_count, _per) else 0 end;
    _spacing := (_per + _lateness) / _count;
  end if;
  -- Also to remove a setting that is not there: stepwell.open_rate, the trigger of these rows, opens the rate at commit.
  -- Here, claims of its jobs would wait for the bucket as long as this transaction stays open.
  insert into stepwell.key_setting as s (key, spacing, burst, late, set_at)
  values (
    _key, _spacing, case when _smooth then 1 else coalesce(_burst, _count) end, _lateness / _spacing, stepwell.now()
  )
  on conflict (key) do update
  set spacing = excluded.spacing, burst = excluded.burst, late = excluded.late, set_at = excluded.set_at;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  perform stepwell.notify_blocked(array[_key]);
end
$$;
