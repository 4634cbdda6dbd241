-- When a transaction that has emitted events commits: give them to those who wait. Waits for nobody longer than a moment: what
-- could not be delivered for certain by then is marked as late, and stepwell.promote delivers it.
create or replace function stepwell.deliver_events() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _ids bigint[];
  _late bigint[];
begin
  -- First of all: on a table of the caller's own, to read new would run casts of the caller's own as the owner of this.
  if tg_relid <> 'stepwell.event'::regclass or tg_op <> 'INSERT' or tg_when <> 'AFTER' or tg_level <> 'ROW' then
    raise exception using errcode = 'insufficient_privilege',
      message = 'stepwell: deliver_events is the trigger of the table stepwell.event, and of no other';
  end if;
  -- The first of a transaction's events brings all that were put in after it, so that jobs are locked in one order. The mark
  -- is in the row, where no client can write it, and goes when the savepoint goes in which it was set. It is looked up:
  -- new is the row as it was put in.
  perform from stepwell.event e where e.id = new.id and not e.delivered;
  if not found then
    return null;
  end if;
  update stepwell.event e set delivered = true
  where e.transaction = new.transaction and e.id > new.id and not e.delivered;
  _ids := case
    when not found then array[new.id]
    else array(select e.id from stepwell.event e where e.transaction = new.transaction and e.id >= new.id)
  end;
  _late := stepwell.deliver(_ids, false);
  if cardinality(_late) > 0 then
    update stepwell.event e set late = '0' where e.id = any (_late);
    -- To stepwell.promote, which delivers them.
    perform stepwell.notify_ready(null, 1);
  end if;
  return null;
end
$$;
