-- How jobs ended: a row for each job that is finished or unknown (state null: it never existed, or has expired). A live
-- job has no row. A group that has ended counts as succeeded, with its summary as the result.
create or replace function stepwell.results(_ids uuid[]) returns table (
  id uuid,
  state stepwell.state,
  task text,
  result json,
  error text,
  type text,
  message text,
  traceback text
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  -- One statement, so that a job that is moving to history, or back by a retry, is seen in exactly one place.
  return query
    select i.id, case when g.known then 'succeeded'::stepwell.state else h.state end, h.task,
      coalesce(h.result, g.summary), h.error, f.type, f.message, f.traceback
    from unnest(_ids) as i (id)
    left join lateral (
      select h.state, h.task, h.result, h.error from stepwell.history h
      where h.id = i.id and h.expires_at > _now
      limit 1
    ) h on true
    left join lateral (
      select f.type, f.message, f.traceback
      from stepwell.failure f
      -- The error line without a message is the type alone; before schema 7 it was the type and a colon.
      cross join lateral unnest(
        case
          when f.message = '' then array[f.type, f.type || ': '] else array[left(f.type || ': ' || f.message, 1000)]
        end
      ) as l (line)
      where f.job_id = i.id and h.state = 'failed'
        -- The newest failure may be of a run that undid the job. stepwell.fail made the error line from the right one.
        and (h.error = l.line or starts_with(h.error, left(l.line || '; and undoing it failed: ', 1000)))
      order by f.epoch desc limit 1
    ) f on true
    -- Lateral, so that each job is looked up by its id.
    left join lateral (select true as found from stepwell.job j where j.id = i.id limit 1) live on true
    left join lateral (
      select true as known, stepwell.group_summary(g.id) as summary
      from stepwell.job_group g
      where g.id = i.id and h.state is null
      limit 1
    ) g on true
    where live.found is null and (g.known is null or g.summary is not null);
end
$$;
