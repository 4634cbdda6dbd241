-- The value of a step that was too large to come with the claim.
create or replace function stepwell.large_value(_job_id uuid, _key text) returns json
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select v.value from stepwell.large_value v
  where v.job_id = _job_id and v.key = _key and v.expires_at > (select stepwell.now())
  limit 1
$$;
