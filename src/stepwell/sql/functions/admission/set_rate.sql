-- Set a rate at run time, in place of the numbers in the code: at most _count jobs with this key start in _per seconds,
-- with bursts of up to _burst, or else of _count. Nulls remove the setting. It takes effect at once. Both open a rate
-- that a handler has closed (RateLimited).
create or replace function stepwell.set_rate(
  _key text, _count integer, _per double precision, _burst integer default null
)
returns void
language plpgsql volatile security definer
as $$
begin
  perform stepwell.check_key(_key);
  perform stepwell.check_rate(_key, _count, _per, _burst);
  if _count is null then
    update stepwell.key_setting s set spacing = null, burst = null, set_at = stepwell.now() where s.key = _key;
  else
    insert into stepwell.key_setting as s (key, spacing, burst, set_at)
    values (_key, _per / _count, coalesce(_burst, _count), stepwell.now())
    on conflict (key) do update set spacing = excluded.spacing, burst = excluded.burst, set_at = excluded.set_at;
  end if;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  -- Only if it is closed: claims of its jobs would wait for a transaction that stays open.
  update stepwell.bucket b set closed_until = null where b.key = _key and b.closed_until > stepwell.now();
  perform stepwell.notify_blocked(array[_key]);
end
$$;
