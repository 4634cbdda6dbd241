-- Rename schedules of an owner from _from[k] to _to[k], of several with one _to the first that exists. A schedule is
-- renamed if it is named after its task and no other has the new name; its state, ticks and runs stay. _declared: those
-- that are declared in code; otherwise those made at run time.
create or replace function stepwell.rename_schedules(_owner text, _from text[], _to text[], _declared boolean)
returns void
language plpgsql volatile security definer
as $$
declare
  _old record;
begin
  for _old in
    select f.id, f.name
    from (
      select distinct on (u.name) o.id, u.name
      from unnest(_from, _to) with ordinality as u (old, name, place)
      join stepwell.schedule o on o.owner = _owner and o.name = u.old
      where o.task = o.name and o.declared = _declared and length(u.name) between 1 and 200
        and not exists (select from stepwell.schedule n where n.owner = _owner and n.name = u.name)
      order by u.name, u.place
    ) f
    -- In the order in which stepwell.tick and stepwell.put_schedules lock them.
    order by f.id
  loop
    begin
      update stepwell.schedule s set name = _old.name where s.id = _old.id and s.name = s.task;
    exception when unique_violation then
      -- Another session has created one of this name meanwhile. The other one becomes stale.
      null;
    end;
  end loop;
end
$$;
