-- Deliver again what stepwell.deliver_events could not deliver for certain. Such an event may have been missed by a job that
-- looked before the event was committed, and is seen to wait only when its own transaction commits. So an event is late until
-- all transactions have ended that ran when it was first seen here. Returns how many were looked at.
create or replace function stepwell.deliver_late(_limit integer default 1000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  _fresh boolean := pg_current_xact_id_if_assigned() is null;
  _ids bigint[];
  _settled bigint[];
  _late bigint[];
begin
  _ids := array(select e.id from stepwell.event e where e.late is not null order by e.late, e.id limit _limit);
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  _ids := array(
    select l.id from (
      select e.id from stepwell.event e
      where e.id = any (_ids) and e.late is not null
      order by e.id
      for no key update skip locked
    ) l
  );
  -- Who waits has a transaction id before it looks.
  _settled := array(
    select e.id from stepwell.event e
    where e.id = any (_ids) and e.late > '0' and e.late < pg_snapshot_xmin(pg_current_snapshot())
  );
  _late := stepwell.deliver(_ids, true);
  update stepwell.event e set late = null where e.id = any (_settled) and e.id <> all (_late);
  if _fresh then
    -- This transaction got its id after it had seen them, so it is later than all that ran then.
    update stepwell.event e set late = pg_current_xact_id()
    where e.id = any (_ids) and e.late = '0' and e.id <> all (_late);
  end if;
  return cardinality(_ids);
end
$$;
