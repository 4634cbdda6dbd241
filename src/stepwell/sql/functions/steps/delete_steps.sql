-- Delete the steps of jobs that ended (_gone), which their history contains, and their unread signals. Two things stay
-- as long as the history of the jobs that are kept: large values, including those of events that the jobs took; and the
-- signals of jobs that can be retried (_retriable).
create or replace function stepwell.delete_steps(
  _gone uuid[],
  _kept uuid[],
  _expires_ats timestamptz[],
  _retriable uuid[]
) returns void
language plpgsql volatile
as $$
declare
  _large uuid[];
  _sent_kept uuid[];
  _takers uuid[];
  _event_ids bigint[];
begin
  perform stepwell.check_isolation();
  -- Not "returning" from the delete: hardly any step is large, and to return them all takes longer than to read twice.
  select array_agg(distinct s.job_id), array_agg(s.job_id) filter (where s.kind = 'wait'),
    array_agg(s.event_id) filter (where s.kind = 'wait')
  into _large, _takers, _event_ids
  from stepwell.step s
  where s.job_id = any (_gone) and s.large;
  delete from stepwell.step s where s.job_id = any (_gone);
  if _takers is not null then
    perform stepwell.keep_events(_takers, _event_ids, _kept, _expires_ats);
  end if;
  _sent_kept := array(select k.id from unnest(_kept) as k (id) intersect select r.id from unnest(_retriable) as r (id));
  if cardinality(_sent_kept) > 0 then
    update stepwell.event e set expires_at = k.expires_at
    from unnest(_kept, _expires_ats) as k (id, expires_at)
    where e.job_id = any (_sent_kept) and e.job_id = k.id;
  end if;
  delete from stepwell.event e
  where e.job_id = any (array(
    select g.id from unnest(_gone) as g (id) except select k.id from unnest(_sent_kept) as k (id)
  ));
  if _large is not null then
    update stepwell.large_value v set expires_at = k.expires_at
    from unnest(_kept, _expires_ats) as k (id, expires_at)
    where v.job_id = any (_large) and v.job_id = k.id;
    delete from stepwell.large_value v
    where v.job_id = any (array(
      select l.id from unnest(_large) as l (id) except select k.id from unnest(_kept) as k (id)
    ));
  end if;
end
$$;
