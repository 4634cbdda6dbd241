-- How far a group is: no row if there is none. The counts of a group that has ended do not change.
create or replace function stepwell.group_progress(_id uuid) returns table (
  total integer,
  succeeded integer,
  failed integer,
  cancelled integer,
  failures jsonb,
  ended boolean,
  then_id uuid,
  then_task text
)
language plpgsql stable security definer
as $$
begin
  return query
    select coalesce(g.total, g.added), g.succeeded + t.succeeded, g.failed + t.failed, g.cancelled + t.cancelled,
      coalesce(
        case when t.changes is null then g.failures else stepwell.merge_failures(g.failures, t.changes) end, '[]'
      ),
      (
        g.finished_at is not null
        or g.succeeded + g.failed + g.cancelled + t.succeeded + t.failed + t.cancelled = g.total
      ) is true,
      g.then_id, g.then_task
    from stepwell.job_group g
    cross join lateral (
      select coalesce(sum(t.succeeded), 0)::integer as succeeded, coalesce(sum(t.failed), 0)::integer as failed,
        coalesce(sum(t.cancelled), 0)::integer as cancelled,
        array_agg(t.changes order by t.id) filter (where t.changes is not null) as changes
      from stepwell.group_tally t
      where t.group_id = g.id and g.finished_at is null
    ) t
    where g.id = _id;
end
$$;
