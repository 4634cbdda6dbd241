-- Take back the permits of jobs that ended, or were handed back without a right to hold them. Returns the keys that
-- have room again.
create or replace function stepwell.return_permits(_ended uuid[], _handed_back uuid[]) returns text[]
language plpgsql volatile
as $$
declare
  _keys text[];
begin
  with returned as (
    delete from stepwell.permit p where p.job_id = any (_ended) returning p.key
  )
  select array_agg(distinct r.key) into _keys from returned r;
  if cardinality(_handed_back) > 0 then
    with returned as (
      delete from stepwell.permit p where p.job_id = any (_handed_back) and not p.hold returning p.key
    )
    select _keys || array_agg(distinct r.key) into _keys from returned r;
  end if;
  return coalesce(_keys, '{}');
end
$$;
