-- The jobs that wait for one of these events, each with the event. The receiver of a signal is looked up by its id: by
-- name, the function would find every job that waits for a signal of that name.
create or replace function stepwell.waiting_for(_event_ids bigint[]) returns table (job_id uuid, event_id bigint)
language plpgsql volatile
as $$
begin
  return query
    select s.job_id, e.id
    from stepwell.event e
    cross join lateral (
      select s.job_id from stepwell.step s
      where s.pending and s.awaited is not null and s.event = e.name and s.event_key = e.key and s.kind = 'wait'
      offset 0
    ) s
    where e.id = any (_event_ids) and e.job_id is null
    union all
    select e.job_id, e.id
    from stepwell.event e
    cross join lateral (
      select s.kind, s.event, s.event_key from stepwell.step s
      where s.job_id = e.job_id and s.pending and s.awaited is not null
      offset 0
    ) s
    where e.id = any (_event_ids) and e.job_id is not null
      and s.kind = 'receive' and s.event = e.name and s.event_key = e.key;
end
$$;
