-- Set a rate at run time, in place of the numbers in the code: at most _count jobs with this key start in _per seconds,
-- with bursts of up to _burst. Nulls remove the setting.
create or replace function stepwell.set_rate(_key text, _count integer, _per double precision, _burst integer default null)
returns void
language plpgsql volatile security definer
as $$
begin
  insert into stepwell.key_setting as s (key, spacing, burst, set_at)
  values (_key, _per / _count, coalesce(_burst, _count), stepwell.now())
  on conflict (key) do update set spacing = excluded.spacing, burst = excluded.burst, set_at = excluded.set_at;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  perform stepwell.notify_blocked(array[_key]);
end
$$;
