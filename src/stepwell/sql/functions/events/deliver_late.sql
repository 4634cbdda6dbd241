-- Repeat the delivery of late events (see stepwell.deliver_events). A job may have missed such an event: it looked
-- before the event was committed, and its wait becomes visible only when its own transaction commits. So an event stays
-- late until every transaction has ended that was running when this function first saw it.
-- Locked jobs are skipped. If more than _limit events are late, those with the oldest turn come first. Returns the
-- number of events tried.
create or replace function stepwell.deliver_late(_limit integer default 1000) returns integer
language plpgsql volatile security definer
-- For the rows of events, which a concurrent call may hold.
set lock_timeout = '250ms'
as $$
declare
  _fresh boolean := pg_current_xact_id_if_assigned() is null;
  _ids bigint[];
  _settled bigint[];
  _late bigint[];
begin
  _ids := array(
    select l.id from (
      select e.id from stepwell.event e
      where e.late is not null
      order by e.late_turn, e.id
      limit _limit
      for no key update skip locked
    ) l
  );
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  -- A job that waits gets its transaction id before it looks.
  _settled := array(
    select e.id from stepwell.event e
    where e.id = any (_ids) and e.late > '0' and e.late < pg_snapshot_xmin(pg_current_snapshot())
  );
  _late := stepwell.deliver(_ids, true);
  update stepwell.event e set late = null where e.id = any (_settled) and e.id <> all (_late);
  if _fresh then
    -- This transaction got its id after it had seen the events, so its id is higher than that of every transaction that
    -- was running then. The xmax of a snapshot would not do: transactions with higher ids may already be running.
    update stepwell.event e set late = pg_current_xact_id()
    where e.id = any (_ids) and e.late = '0' and e.id <> all (_late);
  end if;
  if cardinality(_ids) >= _limit then
    -- Otherwise turns do not matter: during a long transaction this function runs every second, and need not write.
    update stepwell.event e set late_turn = pg_current_xact_id() where e.id = any (_ids) and e.late is not null;
  end if;
  return cardinality(_ids);
end
$$;
