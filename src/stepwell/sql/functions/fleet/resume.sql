-- End exactly this pause: a queue stays paused while everything is paused. Returns false if there was no such pause.
create or replace function stepwell.resume(
  _queue text default null,
  _task text default null,
  _worker uuid default null,
  _everything boolean default false
) returns boolean
language plpgsql volatile security definer
as $$
declare
  _scope record;
  _resumed boolean;
begin
  -- In a join with an empty table control_scope would not be called, so that any argument would be accepted.
  _scope := stepwell.control_scope(_queue, _task, _worker, _everything);
  delete from stepwell.control p where p.action = 'pause' and p.scope = _scope.scope and p.name = _scope.name;
  _resumed := found;
  perform stepwell.notify('stepwell_control', '');
  return _resumed;
end
$$;
