-- Cancel the live children of jobs that failed or were cancelled: no parent is left to receive their results.
create or replace function stepwell.cancel_children(_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
  -- The order of the index on parents, as in stepwell.lock_family.
  _children uuid[] := array(select j.id from stepwell.job j where j.parent_id = any (_ids) order by j.parent_id);
begin
  if cardinality(_children) > 0 then
    perform stepwell.cancel(_children, 'the job that spawned it did not succeed');
  end if;
end
$$;
