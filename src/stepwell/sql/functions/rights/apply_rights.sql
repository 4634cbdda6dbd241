-- Runs last in a migration: give every role exactly the rights that it was granted.
--   Internal functions: revoked from every role.
--   Functions and views that were created anew: granted to the roles that had them before, by name (see
--     note_rights.sql).
--   Grants to public: revoked on functions and relations, except on the functions for everybody.
--   Rights that the owner's default privileges gave on new objects: revoked; on tables, all but select.
--   Grants that "stepwell grant" recorded: granted again, to cover new objects.
create or replace function stepwell.apply_rights() returns void
language plpgsql volatile
as $$
declare
  _noted jsonb := coalesce(nullif(current_setting('stepwell.rights', true), ''), '{}');
  _functions text[] := array(select jsonb_array_elements_text(nullif(_noted -> 'functions', 'null')));
  _relations text[] := array(select jsonb_array_elements_text(nullif(_noted -> 'relations', 'null')));
  _row record;
begin
  if _noted = '{}' then
    raise exception using errcode = 'SW002',
      message = 'stepwell: apply_rights is a part of a migration: use grant_role and revoke_role';
  end if;
  for _row in
    select distinct a.grantee from pg_namespace n cross join lateral aclexplode(n.nspacl) a
    where n.nspname = 'stepwell' and a.grantee <> n.nspowner and a.privilege_type = 'CREATE'
  loop
    execute format('revoke create on schema stepwell from %s cascade', stepwell.role_name(_row.grantee));
  end loop;

  revoke all on all functions in schema stepwell from public;
  for _row in
    select distinct p.oid::regprocedure as function, a.grantee
    from pg_proc p cross join lateral aclexplode(p.proacl) a
    where p.pronamespace = 'stepwell'::regnamespace and a.grantee <> p.proowner
      and (
        p.proname <> all (_functions)
        or not exists (select from stepwell.privilege r where r.object = 'function' and r.name = p.proname)
      )
  loop
    execute format('revoke all on function %s from %s cascade', _row.function, stepwell.role_name(_row.grantee));
  end loop;
  for _row in
    select c.oid::regclass as relation, a.grantee,
      c.relname = any (_relations) and a.grantee <> 0 and bool_or(a.privilege_type = 'SELECT') as may_read
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and a.grantee <> c.relowner
    group by c.oid, c.relname, a.grantee
    having c.relname <> all (_relations) or a.grantee = 0 or bool_or(a.privilege_type <> 'SELECT')
  loop
    execute format('revoke all on %s from %s cascade', _row.relation, stepwell.role_name(_row.grantee));
    if _row.may_read then
      execute format('grant select on %s to %s', _row.relation, stepwell.role_name(_row.grantee));
    end if;
  end loop;
  -- The same for grants on columns, which are not in the relation's ACL.
  for _row in
    select c.oid::regclass as relation, t.attname as name, a.grantee, a.privilege_type
    from pg_class c
    join pg_attribute t on t.attrelid = c.oid and not t.attisdropped
    cross join lateral aclexplode(t.attacl) a
    where c.relnamespace = 'stepwell'::regnamespace and c.relkind in ('r', 'p', 'v') and a.grantee <> c.relowner
      and (a.grantee = 0 or a.privilege_type <> 'SELECT')
  loop
    execute format(
      'revoke %s (%I) on %s from %s cascade', _row.privilege_type, _row.name, _row.relation,
      stepwell.role_name(_row.grantee)
    );
  end loop;

  for _row in
    select p.oid::regprocedure as function
    from pg_proc p join stepwell.privilege r on r.kind = 'everybody' and r.object = 'function' and r.name = p.proname
    where p.pronamespace = 'stepwell'::regnamespace
  loop
    execute format('grant execute on function %s to public', _row.function);
  end loop;

  for _row in
    select p.oid::regprocedure as function, g.role_id, g.grantable
    from jsonb_to_recordset(nullif(_noted -> 'grants', 'null'))
      as g (object text, name text, role_id oid, grantable boolean)
    join pg_proc p on p.pronamespace = 'stepwell'::regnamespace and p.proname = g.name
    where g.object = 'function' and g.role_id <> 0
      and exists (select from stepwell.privilege r where r.object = 'function' and r.name = g.name)
  loop
    execute format('grant execute on function %s to %s', _row.function, stepwell.role_name(_row.role_id))
      || case when _row.grantable then ' with grant option' else '' end;
  end loop;
  for _row in
    select c.oid::regclass as view, g.role_id, g.grantable
    from jsonb_to_recordset(nullif(_noted -> 'grants', 'null'))
      as g (object text, name text, role_id oid, grantable boolean)
    join pg_class c on c.relnamespace = 'stepwell'::regnamespace and c.relkind = 'v' and c.relname = g.name
    where g.object = 'view' and g.role_id <> 0
  loop
    execute format('grant select on %s to %s', _row.view, stepwell.role_name(_row.role_id))
      || case when _row.grantable then ' with grant option' else '' end;
  end loop;

  -- A record has the name and the oid of its role. If only one of them matches, the role was renamed, the database was
  -- copied to another server, or the role was dropped and another one took its name. The record is kept if the role
  -- held all rights of the kind before. A schema without records adopts such roles: they were granted everything by
  -- hand.
  insert into stepwell.grantee (role, kind, role_id)
  select o.rolname, h.kind, o.oid
  from (
    select g.role_id, r.kind
    from stepwell.privilege r
    join jsonb_to_recordset(nullif(_noted -> 'grants', 'null'))
      as g (object text, name text, role_id oid)
      on g.object = r.object and g.name = r.name
    where r.kind <> 'everybody'
    group by g.role_id, r.kind
    having count(distinct (r.object, r.name)) = (
      select count(*) from stepwell.privilege a
      where a.kind = r.kind and a.name = any (case a.object when 'function' then _functions else _relations end)
    )
  ) h
  join pg_roles o on o.oid = h.role_id
  where not (_noted ->> 'grants_are_recorded')::boolean
    or exists (select from stepwell.grantee e where e.kind = h.kind and (e.role = o.rolname or e.role_id = o.oid))
  on conflict on constraint grantee_pkey do update set role_id = excluded.role_id;
  delete from stepwell.grantee e
  where not exists (select from pg_roles o where o.oid = e.role_id and o.rolname = e.role);

  for _row in select e.role_id, array_agg(e.kind) as kinds from stepwell.grantee e group by e.role_id loop
    perform stepwell.grant_kinds(_row.role_id, _row.kinds);
  end loop;
end
$$;
