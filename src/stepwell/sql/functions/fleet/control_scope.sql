-- The scope and name of a control, from exactly one of these parameters.
create or replace function stepwell.control_scope(
  _queue text,
  _task text,
  _worker uuid,
  _everything boolean,
  out scope text,
  out name text
)
language plpgsql stable
as $$
begin
  if num_nonnulls(_queue, _task, _worker, nullif(_everything, false)) <> 1 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: give exactly one of queue, task, worker and everything';
  end if;
  if length(_queue) not between 1 and 200 or length(_task) not between 1 and 200 then
    raise exception using errcode = 'SW002', message = 'stepwell: a name must have 1 to 200 characters';
  end if;
  if right(_queue, 1) = '*' then
    raise exception using errcode = 'SW002',
      message = format('stepwell: %s is a queue pattern: name each queue, or use everything', _queue);
  end if;
  if _worker is not null and not exists (select from stepwell.worker w where w.id = _worker) then
    raise exception using errcode = 'SW003',
      message = format('stepwell: no worker %s is registered: see "stepwell workers"', _worker);
  end if;
  scope := case
    when _queue is not null then 'queue' when _task is not null then 'task' when _worker is not null then 'worker'
    else 'everything'
  end;
  name := coalesce(_queue, _task, _worker::text, '');
end
$$;
