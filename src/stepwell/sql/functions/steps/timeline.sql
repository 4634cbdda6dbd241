-- The saved steps of a job as one value, as history keeps them. stepwell.to_history has the same query inline. Null if
-- they exceed what a worker could ever receive, because Postgres could not build such a value.
create or replace function stepwell.timeline(_job_id uuid) returns json
language plpgsql stable
as $$
begin
  if stepwell.saved_size(_job_id) > 536870912 then
    return null;
  end if;
  return (select json_agg(f.folded order by f.n) from stepwell.folded_steps f where f.job_id = _job_id);
end
$$;
