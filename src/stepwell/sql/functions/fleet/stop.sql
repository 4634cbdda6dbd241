-- Ask workers to drain and stop: those that claim from a queue, those that know a task, one worker, or all. It concerns
-- the workers that have already started. Returns their number.
create or replace function stepwell.stop(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _scope text;
  _name text;
  _told integer;
begin
  select c.scope, c.name into _scope, _name from stepwell.control_scope(_queue, _task, _worker, _everything) c;
  insert into stepwell.control as c (action, scope, name, asked_at, up_to)
  values ('stop', _scope, _name, _now, coalesce(pg_sequence_last_value('stepwell.worker_number_seq'), 0))
  on conflict on constraint control_pkey do update set asked_at = excluded.asked_at, up_to = excluded.up_to;
  -- A stop matters only to workers that started before it, and after this time they have stopped.
  delete from stepwell.control c where c.action = 'stop' and c.asked_at < _now - interval '30 days';
  perform stepwell.notify('stepwell_control', '');
  select count(*) into _told from stepwell.worker w join stepwell.stopping_workers s on s.id = w.id
  where w.lease_until > _now and s.scope = _scope and s.name = _name;
  return _told;
end
$$;
