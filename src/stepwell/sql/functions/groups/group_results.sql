-- How the members of a group ended, in the order of their ids, by page: those after the id _after. Members that are
-- live, or are no longer kept, are left out.
create or replace function stepwell.group_results(_id uuid, _after uuid default null, _limit integer default 1000)
returns table (id uuid, state stepwell.state, task text, result json, error text)
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _from uuid;
  _to uuid;
begin
  if _limit is null or _limit not between 1 and 1000000 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: group_results takes a _limit between 1 and 1000000';
  end if;
  select g.first_id, g.last_id into _from, _to from stepwell.job_group g where g.id = _id;
  return query
    select h.id, h.state, h.task, h.result, h.error
    from stepwell.history h
    where h.id >= greatest(_from, _after) and h.id <= _to and h.id is distinct from _after and h.group_id = _id
      and h.expires_at > _now
    order by h.id
    limit _limit;
end
$$;
