-- Lock running jobs that are about to be handed back, in the order of their ids. If a cancel of one was requested,
-- handing it back ends it. Then all are locked with the parents and descendants of such jobs, as in stepwell.cancel. No
-- row may be locked before that: holding a child while waiting for its parent would deadlock with the end of the
-- parent. If a cancel is committed while this function waits for a lock, it releases all locks and takes them again
-- with the family.
create or replace function stepwell.lock_to_hand_back(_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
  _late boolean;
  _cancelling uuid[];
  _parent_ids uuid[];
begin
  -- Each round but the last has found another job whose cancel was requested, so there are few rounds.
  loop
    begin
      -- Here and below, with the bare column the planner would take the index on jobs that are being cancelled.
      select bool_or(l.cancelling) into _late
      from (
        select j.cancelling from stepwell.job j
        where j.id = any (_ids)
          and not exists (select from stepwell.job c where c.id = any (_ids) and c.cancelling is distinct from false)
        order by j.id
        for no key update
      ) l;
      if _late is null then
        select array_agg(j.id), array_agg(j.parent_id) into _cancelling, _parent_ids
        from stepwell.job j
        where j.id = any (_ids) and j.cancelling is distinct from false;
        perform stepwell.lock_family(_cancelling, _parent_ids || _ids, true);
        _late := exists (
          select from stepwell.job j
          where j.id = any (_ids) and j.cancelling is distinct from false and j.id <> all (coalesce(_cancelling, '{}'))
        );
      end if;
      if not _late then
        return;
      end if;
      -- The exception rolls back to the block's savepoint, which releases the locks.
      raise exception using errcode = 'SW099', message = 'stepwell: a job was cancelled at this moment';
    exception when sqlstate 'SW099' then
      null;
    end;
  end loop;
end
$$;
