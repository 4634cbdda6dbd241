-- Pause a schedule until it is resumed; false: there is no such schedule. Jobs that it has enqueued continue.
create or replace function stepwell.pause_schedule(_owner text, _name text) returns boolean
language plpgsql volatile security definer
as $$
begin
  update stepwell.schedule s
  set paused_at = coalesce(s.paused_at, stepwell.now()), next_tick_at = null, version = s.version + 1
  where s.owner = _owner and s.name = _name;
  return found;
end
$$;
