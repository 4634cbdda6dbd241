-- The job that has the unique key of a finished job, so that this one cannot be retried; null: none has.
create or replace function stepwell.key_holder(_id uuid) returns uuid
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  return (
    select k.job_id
    from stepwell.history h
    join stepwell.unique_key k on k.key = h.admission #>> '{unique,key}'
    where h.id = _id and k.job_id <> _id and (k.live or k.expires_at > _now)
      and ((h.admission #>> '{unique,until_start}')::boolean is not true or h.epoch = 0)
    limit 1
  );
end
$$;
