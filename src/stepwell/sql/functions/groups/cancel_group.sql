-- Cancel live members of a group, as stepwell.cancel does: at most _limit, in the order of their ids, after the id
-- _after. Returns how many, and the id to continue after; null: there are no more.
create or replace function stepwell.cancel_group(
  _id uuid,
  _reason text default null,
  _after uuid default null,
  _limit integer default 1000,
  out cancelled integer,
  out looked_to uuid
)
language plpgsql volatile security definer
as $$
declare
  _from uuid;
  _to uuid;
  _ids uuid[];
begin
  if _limit is null or _limit not between 1 and 1000000 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: cancel_group takes a _limit between 1 and 1000000';
  end if;
  select g.first_id, g.last_id into _from, _to from stepwell.job_group g where g.id = _id;
  _ids := array(
    select j.id from stepwell.job j
    where j.id >= greatest(_from, _after) and j.id <= _to and j.id is distinct from _after and j.group_id = _id
    order by j.id
    limit _limit
  );
  cancelled := (select count(*) from stepwell.cancel(_ids, _reason));
  looked_to := case when cardinality(_ids) = _limit then _ids[_limit] end;
end
$$;
