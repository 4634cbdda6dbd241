-- Wait briefly for the advisory lock of an event's name, which any role that can connect can hold. False: not granted.
create or replace function stepwell.lock_event(_name integer) returns boolean
language plpgsql volatile
set lock_timeout = '250ms'
as $$
begin
  perform pg_advisory_xact_lock_shared(1937007984, _name);
  return true;
exception when lock_not_available or deadlock_detected then
  return false;
end
$$;
