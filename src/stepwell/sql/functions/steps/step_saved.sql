-- Whether a step was saved. The call waits for a transaction that is saving a step of the job, so the answer is final
-- after a commit in doubt. Null: the run no longer holds the job.
create or replace function stepwell.step_saved(_id uuid, _epoch integer, _key text) returns boolean
language plpgsql volatile security definer
as $$
begin
  if not stepwell.still_held(_id, _epoch) then
    return null;
  end if;
  return exists (select from stepwell.step s where s.job_id = _id and s.key = _key);
end
$$;
