-- Change a limit in stepwell.size_limit, with the rights of the caller: the owner of the schema. Returns the old limit.
create or replace function stepwell.set_size_limit(_name text, _bytes bigint) returns bigint
language plpgsql volatile
as $$
declare
  _before bigint;
  _args bigint;
  _job bigint;
begin
  select l.bytes into _before from stepwell.size_limit l where l.name = _name for update;
  if not found then
    raise exception using errcode = 'SW002', message = format(
      'stepwell: there is no limit named %s: give one of %s', quote_literal(_name),
      (select string_agg(l.name, ', ' order by l.name) from stepwell.size_limit l)
    );
  end if;
  if (_bytes between 65536 and 536870912) is not true then
    raise exception using errcode = 'SW002', message = 'stepwell: a limit must be between 64 kB and 512 MB';
  end if;
  update stepwell.size_limit l set bytes = _bytes where l.name = _name;
  select sum(l.bytes) filter (where l.name in ('args', 'metadata')), sum(l.bytes) filter (where l.name = 'job')
  into _args, _job
  from stepwell.size_limit l;
  if _job < _args then
    raise exception using errcode = 'SW002', message = format(
      'stepwell: the limit of a job would be %s kB, and those of its args and metadata together %s kB, which is '
      'more: %s',
      _job / 1024, ceil(_args / 1024.0),
      case
        when _name = 'job' then 'lower those of args or metadata first'
        else format('first run "stepwell limits set job %skB"', ceil(_args / 1024.0))
      end
    );
  end if;
  return _before;
end
$$;
