-- Answer requests for stacks, which the orders of this worker named. Of each answer the first 32,768 characters are
-- kept. Requests that are gone, or that ask another worker, are ignored.
create or replace function stepwell.answer_stacks(_worker_id uuid, _requests uuid[], _answers text[]) returns void
language plpgsql volatile security definer
as $$
begin
  update stepwell.stack_request r set answer = left(coalesce(u.answer, ''), 32768)
  from unnest(_requests, _answers) as u (id, answer)
  where r.id = any (_requests) and r.id = u.id and r.worker_id = _worker_id and r.answer is null;
end
$$;
