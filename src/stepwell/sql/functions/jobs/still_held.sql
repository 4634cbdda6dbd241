-- Whether a run still holds its job. Waits for whoever is about to finish it, so after a commit in doubt the answer
-- is final: false means that it was committed, or that the job went to somebody else.
create or replace function stepwell.still_held(_id uuid, _epoch integer) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from stepwell.job j where j.id = _id and j.epoch = _epoch and j.worker_id is not null for no key update;
  return found;
end
$$;
