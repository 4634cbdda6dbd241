-- Delete schedules of an owner with the records of their ticks; their jobs stay. Returns the names. _names: these
-- schedules or, with _except, all others. _declared: only schedules that are declared in code; null: all.
create or replace function stepwell.remove_schedules(
  _owner text,
  _names text[],
  _except boolean default false,
  _declared boolean default null
) returns text[]
language plpgsql volatile security definer
as $$
declare
  _gone uuid[];
  _names_gone text[];
begin
  with gone as (
    select s.id, s.name from stepwell.schedule s
    where s.owner = _owner and (s.name in (select n.name from unnest(_names) as n (name))) <> _except
      and s.declared = coalesce(_declared, s.declared)
    order by s.id
    for update
  )
  select coalesce(array_agg(g.id), '{}'), coalesce(array_agg(g.name order by g.name), '{}') into _gone, _names_gone
  from gone g;
  delete from stepwell.tick t where t.schedule_id = any (_gone);
  delete from stepwell.schedule s where s.id = any (_gone);
  return _names_gone;
end
$$;
