-- Resume a paused schedule from _next, which the caller computed for _version of it; false: the schedule has changed
-- since or is gone. Ticks missed during the pause are not fired. A schedule that is not paused keeps its next tick.
create or replace function stepwell.resume_schedule(_id uuid, _version integer, _next timestamptz) returns boolean
language plpgsql volatile security definer
as $$
begin
  update stepwell.schedule s
  set next_tick_at = case when s.paused_at is null then s.next_tick_at else _next end,
    paused_at = null, version = s.version + 1
  where s.id = _id and s.version = _version;
  if not found then
    return false;
  end if;
  perform stepwell.notify('stepwell_tick', '');
  return true;
end
$$;
