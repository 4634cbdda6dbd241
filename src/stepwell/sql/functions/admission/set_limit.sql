-- Set a limit at run time, in place of the number in the code: at most _most jobs with this key run at once, and 0
-- admits none. Null removes the setting. It takes effect at once; running jobs go on.
create or replace function stepwell.set_limit(_key text, _most integer) returns void
language plpgsql volatile security definer
as $$
begin
  perform stepwell.check_key(_key);
  if _most not between 0 and 1000000 then
    raise exception using errcode = 'SW002',
      message = format(
        'stepwell: the limit of %s is %s: give 0 to 1000000, or null to remove the setting', _key, _most
      );
  end if;
  if _most is null then
    update stepwell.key_setting s set most = null, set_at = stepwell.now() where s.key = _key;
  else
    insert into stepwell.key_setting as s (key, most, set_at) values (_key, _most, stepwell.now())
    on conflict (key) do update set most = excluded.most, set_at = excluded.set_at;
  end if;
  delete from stepwell.key_setting s where s.key = _key and s.most is null and s.spacing is null;
  perform stepwell.notify_blocked(array[_key]);
end
$$;
