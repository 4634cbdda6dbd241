-- The size in bytes of the keys, values and errors that a job has saved, at most a billion, to fit an integer. It is a
-- function, so that a claim of plain jobs does not pay for the query.
create or replace function stepwell.saved_size(_job_id uuid) returns integer
language plpgsql stable
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
