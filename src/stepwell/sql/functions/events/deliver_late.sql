-- Deliver again what stepwell.deliver_events could not deliver for certain. Such an event may have been missed by a job that
-- looked before the event was committed, and is seen to wait only when its own transaction commits. So an event is late until
-- all transactions have ended that ran when it was first seen here. It waits for no job that is locked, and takes turns: if more than _limit
-- events are late, those come first whose last turn is longest ago. Returns how many were looked at.
create or replace function stepwell.deliver_late(_limit integer default 1000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- For the rows of events, which another call of this may be taking at the moment.
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
  -- Who waits has a transaction id before it looks.
  _settled := array(
    select e.id from stepwell.event e
    where e.id = any (_ids) and e.late > '0' and e.late < pg_snapshot_xmin(pg_current_snapshot())
  );
  _late := stepwell.deliver(_ids, true);
  update stepwell.event e set late = null where e.id = any (_settled) and e.id <> all (_late);
  if _fresh then
    -- This transaction got its id after it had seen them, so it is later than all that ran then. The end of a snapshot would
    -- not do: transactions with higher ids may run already.
    update stepwell.event e set late = pg_current_xact_id()
    where e.id = any (_ids) and e.late = '0' and e.id <> all (_late);
  end if;
  if cardinality(_ids) >= _limit then
    -- There may be others. Otherwise there is nothing to write: while a transaction runs for long, this is called each second.
    update stepwell.event e set late_turn = pg_current_xact_id() where e.id = any (_ids) and e.late is not null;
  end if;
  return cardinality(_ids);
end
$$;
