-- Add the counts in stepwell.group_tally to their groups. Workers do this when they promote due jobs. Returns in how
-- many seconds to call it again; null: nothing is left.
create or replace function stepwell.fold_groups(_limit integer default 10000) returns double precision
language plpgsql volatile
as $$
declare
  _groups uuid[] := array(
    select distinct t.group_id from (select t.group_id from stepwell.group_tally t order by t.id limit _limit) t
  );
begin
  perform stepwell.settle_groups(_groups, null);
  -- A group that has expired needs no counts.
  delete from stepwell.group_tally t
  where t.group_id = any (_groups)
    and (select true from stepwell.job_group g where g.id = t.group_id limit 1) is null;
  perform from stepwell.group_tally t order by t.id limit 1;
  return case when found then 0.05 end;
end
$$;
