-- Set a rate at run time, in place of the numbers in the code: at most _count jobs with this key start in _per seconds,
-- with bursts of up to _burst, or else of _count. Nulls remove the setting. It takes effect at once.
create or replace function stepwell.set_rate(_key text, _count integer, _per double precision, _burst integer default null)
returns void
language plpgsql volatile security definer
as $$
declare
  _wrong text := case
    when (_count is null) <> (_per is null) then 'give both a count and a number of seconds, or nulls for both'
    when _count is null and _burst is not null then 'a burst needs a count and a number of seconds'
    when _count not between 1 and 1000000 then format('the count is %s: give 1 to 1000000', _count)
    -- NaN is greater than any number.
    when not (_per >= 0.000001 and _per <= 3155760000) then
      format('the count is for %s seconds: give more than 0, and at most 100 years', _per)
    when _burst not between 1 and 1000000 then format('the burst is %s: give 1 to 1000000', _burst)
    when _per / _count * _burst > 3155760000 then 'the burst would take more than 100 years to fill up: give a smaller one'
  end;
begin
  perform stepwell.check_key(_key);
  if _wrong is not null then
    raise exception using errcode = 'SW002', message = format('stepwell: the rate of %s: %s', _key, _wrong);
  end if;
  if _count is null then
    update stepwell.key_setting s set spacing = null, burst = null, set_at = stepwell.now() where s.key = _key;
  else
    insert into stepwell.key_setting as s (key, spacing, burst, set_at)
    values (_key, _per / _count, coalesce(_burst, _count), stepwell.now())
    on conflict (key) do update set spacing = excluded.spacing, burst = excluded.burst, set_at = excluded.set_at;
  end if;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  perform stepwell.notify_blocked(array[_key]);
end
$$;
