-- Keep events for the history of jobs that refer to their large values: the k-th of _takers took the k-th of
-- _event_ids. Many jobs may take one event, so it is kept up to two days too long: most later calls write nothing.
create or replace function stepwell.keep_events(
  _takers uuid[],
  _event_ids bigint[],
  _kept uuid[],
  _expires_ats timestamptz[]
) returns void
language plpgsql volatile
as $$
declare
  _ids bigint[];
  _untils timestamptz[];
begin
  select array_agg(n.id), array_agg(n.until) into _ids, _untils
  from (
    select t.event_id as id, max(k.expires_at) as until
    from unnest(_takers, _event_ids) as t (job_id, event_id)
    join unnest(_kept, _expires_ats) as k (id, expires_at) on k.id = t.job_id
    group by t.event_id
  ) n
  -- As a join, this would read all events.
  where (select true from stepwell.event e where e.id = n.id and (e.kept_until is null or e.kept_until < n.until));
  if _ids is null then
    return;
  end if;
  perform from stepwell.event e where e.id = any (_ids) order by e.id for no key update;
  update stepwell.event e
  set kept_until = greatest(e.kept_until, date_trunc('day', u.until) + interval '2 days')
  from unnest(_ids, _untils) as u (id, until)
  where e.id = any (_ids) and e.id = u.id;
end
$$;
