-- The commit trigger of stepwell.event: deliver the events that the transaction has emitted. It waits for locks only
-- briefly. An event that may not have reached every job is marked as late, and stepwell.promote delivers it again.
create or replace function stepwell.deliver_events() returns trigger
language plpgsql volatile security definer
as $$
declare
  _ids bigint[];
  _late bigint[];
begin
  -- This check must come first. On a table of the caller's own, reading new would run the caller's casts with the
  -- rights of the owner of this function.
  if tg_relid <> 'stepwell.event'::regclass or tg_op <> 'INSERT' or tg_when <> 'AFTER' or tg_level <> 'ROW' then
    raise exception using errcode = 'insufficient_privilege',
      message = 'stepwell: deliver_events can only be the trigger of stepwell.event';
  end if;
  -- The first event of a transaction delivers all later ones, so that jobs are locked in one order. The mark is a
  -- column, which no client can write and which is rolled back with its savepoint. It is read from the table, because
  -- new is the row as it was inserted.
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
    -- Workers call stepwell.promote then.
    perform stepwell.notify_ready(null, 1);
  end if;
  return null;
end
$$;
