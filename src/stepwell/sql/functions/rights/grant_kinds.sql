-- Grant a role the privileges of these kinds, without recording it.
create or replace function stepwell.grant_kinds(_role_id oid, _kinds text[]) returns void
language plpgsql volatile
as $$
declare
  _role text := stepwell.role_name(_role_id);
  _row record;
begin
  execute format('grant usage on schema stepwell to %s', _role);
  for _row in
    select p.oid::regprocedure as function from pg_proc p
    where p.pronamespace = 'stepwell'::regnamespace
      and p.proname in (select r.name from stepwell.privilege r where r.kind = any (_kinds) and r.object = 'function')
  loop
    execute format('grant execute on function %s to %s', _row.function, _role);
  end loop;
  for _row in select r.name from stepwell.privilege r where r.kind = any (_kinds) and r.object = 'view' loop
    execute format('grant select on stepwell.%I to %s', _row.name, _role);
  end loop;
end
$$;
