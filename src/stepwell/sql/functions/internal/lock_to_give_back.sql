-- Lock running jobs that are about to be given back, in the order of their ids. One that was asked to stop ends with that: then
-- they are locked with their parents and all that descends from them, as whoever cancels or ends a parent does. So nothing may be
-- locked before: a child that is held while its parent is waited for is what the parent's end waits for. When somebody whom this
-- had to wait for has asked one to stop, all locks are released and taken again with its family.
create or replace function stepwell.lock_to_give_back(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _late boolean;
  _cancelling uuid[];
  _parent_ids uuid[];
begin
  -- Each round but the last has found one more that was asked to stop, so there are few.
  loop
    begin
      -- Said so, here and below, because the bare column would tempt the planner to the index on all that is being cancelled.
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
      -- What is caught below releases the locks.
      raise exception using errcode = 'SW099', message = 'stepwell: a job was cancelled at this moment';
    exception when sqlstate 'SW099' then
      null;
    end;
  end loop;
end
$$;
