-- Count members of groups that have ended. The last one of a group ends the group and starts its callback.
-- This never waits for another session. If the row of a group is locked, or if this transaction may stay open (not
-- _at_once) and must not lock it, the counts are stored in stepwell.group_tally, and a worker adds them.
create or replace function stepwell.count_members(_members stepwell.member_end[], _at_once boolean) returns void
language plpgsql volatile
as $$
declare
  _groups uuid[] := array(select distinct m.group_id from unnest(_members) as m order by m.group_id);
  _settled uuid[] := '{}';
begin
  -- At another isolation level, a row that was changed since the snapshot could not be locked.
  if _at_once and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    _settled := stepwell.settle_groups(_groups, _members);
    if cardinality(_settled) = cardinality(_groups) then
      return;
    end if;
  end if;
  insert into stepwell.group_tally (group_id, succeeded, failed, cancelled, changes)
  select m.group_id, count(*) filter (where m.state = 'succeeded'), count(*) filter (where m.state = 'failed'),
    count(*) filter (where m.state = 'cancelled'),
    to_jsonb(
      (
        array_agg(jsonb_build_object('id', m.id, 'error', coalesce(m.error, '')))
          filter (where m.state = 'failed')
      )[:10]
    )
  from unnest(_members) as m
  where (m.group_id in (select s.id from unnest(_settled) as s (id))) is not true
  group by m.group_id
  order by m.group_id;
  perform stepwell.notify_ready(null, 0.01);
end
$$;
