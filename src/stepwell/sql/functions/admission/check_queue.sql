-- Refuse the name of a queue that can have no settings.
create or replace function stepwell.check_queue(_queue text) returns void
language plpgsql immutable
as $$
begin
  if (length(_queue) between 1 and 200) is not true then
    raise exception using errcode = 'SW002', message = 'stepwell: a queue''s name must have 1 to 200 characters';
  end if;
  if right(_queue, 1) = '*' then
    raise exception using errcode = 'SW002',
      message = format('stepwell: %s is a queue pattern: name each queue', _queue);
  end if;
end
$$;
