-- The value of a step that was too large for the claim. A step that took a large event refers to the event's value.
create or replace function stepwell.large_value(_job_id uuid, _key text) returns json
language sql stable security definer
as $$
  select coalesce(
    (
      select v.value from stepwell.large_value v
      where v.job_id = _job_id and v.key = _key and v.expires_at > (select stepwell.now())
      limit 1
    ),
    (
      select e.value from stepwell.event e
      where e.id = (select s.event_id from stepwell.step s where s.job_id = _job_id and s.key = _key and s.large)
    ),
    (
      select e.value from stepwell.event e
      where e.id = (
        select u.event_id from stepwell.history h cross join lateral stepwell.unfold(h.steps) u
        where h.id = _job_id and h.expires_at > (select stepwell.now()) and u.key = _key and u.large
        limit 1
      )
    )
  )
$$;
