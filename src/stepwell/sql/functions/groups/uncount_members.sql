-- Take back the counts of members that a retry brought back from history, and look again at groups whose callback it
-- brought back. The transaction may stay open, so it locks no group: see stepwell.count_members. A group that has ended
-- stays as it is.
create or replace function stepwell.uncount_members(_members stepwell.member_end[], _callbacks uuid[]) returns void
language plpgsql volatile
as $$
begin
  insert into stepwell.group_tally (group_id, failed, cancelled, changes)
  select m.group_id, -count(*) filter (where m.state = 'failed'), -count(*) filter (where m.state = 'cancelled'),
    jsonb_agg(jsonb_build_object('id', m.id)) filter (where m.state = 'failed')
  from unnest(_members) as m
  group by m.group_id
  union all
  select g.id, 0, 0, null from stepwell.job_group g where g.then_id = any (_callbacks);
  perform stepwell.notify_ready(null, 0.01);
end
$$;
