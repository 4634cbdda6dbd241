-- The fingerprint of the last failed attempt of a job; null: no attempt has one.
create or replace function stepwell.last_failure(_id uuid) returns uuid
language plpgsql stable
as $$
begin
  return (
    select f.fingerprint from stepwell.failure f
    where f.job_id = _id and f.expires_at > stepwell.now()
    order by f.epoch desc
    limit 1
  );
end
$$;
