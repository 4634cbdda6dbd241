-- Save filters of the list of jobs under a name that is free: _filters is an object of texts, as they are in the URL of
-- the list. Returns whether the name was free. There are at most 200 views, so that all of them can be shown.
create or replace function stepwell.save_view(_name text, _filters jsonb, _by text) returns boolean
language plpgsql volatile security definer
as $$
declare
  _most constant integer := 200;
begin
  if _name is null or length(_name) not between 1 and 100 or _name <> btrim(_name) or _name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'SW002',
      message = 'stepwell: the name of a view has 1 to 100 characters, and no control characters or spaces around it';
  end if;
  if jsonb_typeof(_filters) is distinct from 'object' or octet_length(_filters::text) > 10000
    or exists (select from jsonb_each(_filters) as f where jsonb_typeof(f.value) <> 'string')
  then
    raise exception using errcode = 'SW002',
      message = 'stepwell: the filters of a view are a JSON object of texts, of less than 10 kB';
  end if;
  -- One at a time, or several could exceed the number together.
  lock table stepwell.saved_view in share row exclusive mode;
  if exists (select from stepwell.saved_view v where v.name = _name) then
    return false;
  end if;
  if (select count(*) from stepwell.saved_view) >= _most then
    raise exception using errcode = 'SW002',
      message = format('stepwell: there are %s saved views, which is the most: delete one', _most);
  end if;
  insert into stepwell.saved_view (name, filters, saved_by, saved_at)
  values (_name, _filters, left(coalesce(_by, ''), 200), stepwell.now());
  return true;
end
$$;
