-- Claim again what was paused: exactly that, so a queue stays paused while everything is. False: it was not paused.
create or replace function stepwell.resume(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _scope record;
  _resumed boolean;
begin
  -- On its own, because a join with a table that has no rows would not call it, and so accept anything.
  _scope := stepwell.control_scope(_queue, _task, _worker, _everything);
  delete from stepwell.control p where p.action = 'pause' and p.scope = _scope.scope and p.name = _scope.name;
  _resumed := found;
  perform stepwell.notify('stepwell_control', '');
  return _resumed;
end
$$;
