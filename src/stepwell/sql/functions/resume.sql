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
  _resumed boolean;
begin
  delete from stepwell.control p
  using stepwell.control_scope(_queue, _task, _worker, _everything) c
  where p.action = 'pause' and p.scope = c.scope and p.name = c.name;
  _resumed := found;
  perform stepwell.notify('stepwell_control', '');
  return _resumed;
end
$$;
