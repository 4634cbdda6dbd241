-- The commit trigger of stepwell.key_setting: open a rate that a handler has closed (RateLimited), after
-- stepwell.set_rate has set it or removed its setting.
create or replace function stepwell.open_rate() returns trigger
language plpgsql volatile security definer
as $$
begin
  -- This check must come first. On a table of the caller's own, reading new would run the caller's casts with the
  -- rights of the owner of this function.
  if tg_relid <> 'stepwell.key_setting'::regclass or tg_when <> 'AFTER' or tg_level <> 'ROW' or tg_op = 'DELETE' then
    raise exception using errcode = 'insufficient_privilege',
      message = 'stepwell: open_rate can only be the trigger of stepwell.key_setting';
  end if;
  -- A row that begins with a limit is from stepwell.set_limit.
  if tg_op = 'UPDATE' or new.most is null then
    update stepwell.bucket b set closed_until = null where b.key = new.key and b.closed_until > stepwell.now();
  end if;
  return null;
end
$$;
