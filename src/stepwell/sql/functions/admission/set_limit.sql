-- Set a limit at run time, in place of the number in the code: at most _most jobs with this key run at once, and 0
-- admits none. Null removes the setting. It takes effect at once; running jobs go on.
create or replace function stepwell.set_limit(_key text, _most integer) returns void
language plpgsql volatile security definer
as $$
begin
  insert into stepwell.key_setting as s (key, most, set_at) values (_key, _most, stepwell.now())
  on conflict (key) do update set most = excluded.most, set_at = excluded.set_at;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  perform stepwell.notify_blocked(array[_key]);
end
$$;
