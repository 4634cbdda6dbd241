-- Stop claims from a queue, of a task, by a worker, or all claims, until they are resumed. Running jobs continue.
create or replace function stepwell.pause(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns void
language plpgsql volatile security definer
as $$
begin
  insert into stepwell.control (action, scope, name, asked_at)
  select 'pause', c.scope, c.name, stepwell.now() from stepwell.control_scope(_queue, _task, _worker, _everything) c
  on conflict on constraint control_pkey do nothing;
  perform stepwell.notify('stepwell_control', '');
end
$$;
