-- Say that a group has all its members. It ends when they have ended: at once, if there are none. Returns how many.
create or replace function stepwell.seal_group(_id uuid) returns integer
language plpgsql volatile security definer
as $$
declare
  _total integer;
begin
  update stepwell.job_group g set total = g.added where g.id = _id and g.total is null returning g.total into _total;
  if not found then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('stepwell: there is no group %s, or it is sealed already: open it first', _id);
  end if;
  perform stepwell.settle_groups(array[_id], null);
  return _total;
end
$$;
