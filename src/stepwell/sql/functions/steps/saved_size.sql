-- How many bytes of keys, values and errors a job has saved.
-- A function, so that a claim of plain jobs does not have to set up the query. At most a billion, so that it is an integer.
create or replace function stepwell.saved_size(_job_id uuid) returns integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select least(1000000000, coalesce(sum(
      octet_length(s.key) + coalesce(stepwell.json_size(s.value), 0) + coalesce(stepwell.json_size(s.error), 0)
    ), 0))
    from stepwell.step s where s.job_id = _job_id
  );
end
$$;
