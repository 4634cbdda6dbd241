-- Whether a run still holds its job. The call waits for a transaction that is finishing the job, so the answer is final
-- after a commit in doubt: false means that the finish was committed, or that another run has the job.
create or replace function stepwell.still_held(_id uuid, _epoch integer) returns boolean
language plpgsql volatile security definer
as $$
begin
  perform from stepwell.job j where j.id = _id and j.epoch = _epoch and j.worker_id is not null for no key update;
  return found;
end
$$;
