-- The states of the jobs that a bulk operation may change: those that the filter names, or else all that the act is
-- for; a retry is for failed jobs unless the filter says otherwise. Refuses a state that the act is not for.
create or replace function stepwell.bulk_states(_act text, _filter jsonb) returns stepwell.state[]
language plpgsql immutable
as $$
declare
  _for stepwell.state[] := case _act
    when 'retry' then '{failed,cancelled,scheduled}'
    when 'cancel' then '{scheduled,ready,running,waiting,blocked}'
    when 'run' then '{scheduled,waiting}'
    when 'delete' then '{succeeded,failed,cancelled}'
    when 'move' then '{scheduled,ready,blocked}'
  end;
  _named text[] := (select array_agg(s.name) from jsonb_array_elements_text(_filter -> 'states') as s (name));
begin
  if _for is null then
    raise exception using errcode = 'SW002',
      message = format('stepwell: there is no bulk operation %s: it is retry, cancel, run, delete or move',
        quote_nullable(left(_act, 100)));
  end if;
  if _named is null then
    return case
      when _act = 'retry' then '{failed}'
      -- Of live jobs, only running ones have a worker.
      when _act = 'cancel' and _filter ? 'worker' then '{running}'
      else _for
    end;
  end if;
  if not _named <@ _for::text[] then
    raise exception using errcode = 'SW002',
      message = format('stepwell: state is %s: %s is for jobs that are %s', left(array_to_string(_named, ', '), 100),
        _act, array_to_string(_for, ', '));
  end if;
  return _named::stepwell.state[];
end
$$;
