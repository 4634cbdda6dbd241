-- Revoke these kinds from a role, including grants by hand, except what the role still holds by another kind. Null:
-- everything that the role may do in this schema. Returns the kinds that are still recorded.
create or replace function stepwell.revoke_role(_role text, _kinds text[] default null) returns text[]
language plpgsql volatile
as $$
declare
  _role_id oid := stepwell.known_role(_role, _kinds);
  _left text[];
  _row record;
begin
  delete from stepwell.grantee e where e.role = _role and (_kinds is null or e.kind = any (_kinds));
  _left := array(select e.kind from stepwell.grantee e where e.role = _role and e.role_id = _role_id order by e.kind);
  for _row in
    select distinct p.oid::regprocedure as function
    from pg_proc p cross join lateral aclexplode(p.proacl) a
    where p.pronamespace = 'stepwell'::regnamespace and a.grantee = _role_id and a.grantee <> p.proowner
      and (
        _kinds is null
        or p.proname in (select r.name from stepwell.privilege r where r.object = 'function' and r.kind = any (_kinds))
      )
      and p.proname not in (
        select r.name from stepwell.privilege r where r.object = 'function' and r.kind = any (_left)
      )
  loop
    execute format('revoke all on function %s from %I cascade', _row.function, _role);
  end loop;
  for _row in
    select distinct c.oid::regclass as relation
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.relnamespace = 'stepwell'::regnamespace and a.grantee = _role_id and a.grantee <> c.relowner
      and (
        _kinds is null
        or c.relname in (select r.name from stepwell.privilege r where r.object = 'view' and r.kind = any (_kinds))
      )
      and c.relname not in (select r.name from stepwell.privilege r where r.object = 'view' and r.kind = any (_left))
  loop
    execute format('revoke all on %s from %I cascade', _row.relation, _role);
  end loop;
  if not exists (
    select from pg_proc p cross join lateral aclexplode(p.proacl) a
    where p.pronamespace = 'stepwell'::regnamespace and a.grantee = _role_id
    union all
    select from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.relnamespace = 'stepwell'::regnamespace and a.grantee = _role_id
  ) then
    execute format('revoke all on schema stepwell from %I cascade', _role);
  end if;
  return _left;
end
$$;
