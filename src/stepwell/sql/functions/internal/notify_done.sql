-- Tell those who wait for results which jobs ended, if anybody waits: a process that does holds the advisory lock
-- (1937007980, 0) shared, so when the exclusive lock is to be had nobody listens and nothing is sent.
create or replace function stepwell.notify_done(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _first integer := 1;
begin
  if _ids is null then
    return;
  end if;
  if pg_try_advisory_lock(1937007980, 0) then
    perform pg_advisory_unlock(1937007980, 0);
    return;
  end if;
  -- A payload holds less than 8000 bytes, an id and its comma take 37.
  while _first <= cardinality(_ids) loop
    perform stepwell.notify('stepwell_done', array_to_string(_ids[_first : _first + 199], ','));
    _first := _first + 200;
  end loop;
end
$$;
