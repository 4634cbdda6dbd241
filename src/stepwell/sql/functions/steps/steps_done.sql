-- The number of successful steps of a live job. A job with more of them than at its last failure has made progress.
-- Pending and failed steps do not count: a failed child, for example, is spawned again by each attempt. Drawn values do
-- not either, or an attempt that draws one and fails would be progress.
create or replace function stepwell.steps_done(_id uuid) returns integer
language plpgsql stable
as $$
begin
  return (
    select count(*) from stepwell.step s
    where s.job_id = _id and not s.pending and s.error is null and s.kind not in ('retry', 'taken', 'random', 'uuid')
  );
end
$$;
