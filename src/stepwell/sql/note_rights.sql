-- Runs before the migrations: note the functions and relations and the grants on them, for stepwell.apply_rights. A
-- migration that drops and creates a function or view loses its grants.
select set_config(
  'stepwell.rights',
  json_build_object(
    'grants_are_recorded', to_regclass('stepwell.grantee') is not null,
    'functions',
    (select json_agg(distinct p.proname) from pg_proc p where p.pronamespace = to_regnamespace('stepwell')),
    'relations', (select json_agg(c.relname) from pg_class c where c.relnamespace = to_regnamespace('stepwell')),
    'grants', (
      select json_agg(distinct jsonb_build_object(
        'object', o.object, 'name', o.name, 'role_id', a.grantee::bigint, 'grantable', a.is_grantable
      ))
      from (
        select 'function' as object, p.proname as name, p.proacl as acl, p.proowner as owner
        from pg_proc p where p.pronamespace = to_regnamespace('stepwell')
        union all
        select 'view', c.relname, c.relacl, c.relowner
        from pg_class c where c.relnamespace = to_regnamespace('stepwell') and c.relkind = 'v'
      ) o
      cross join lateral aclexplode(o.acl) a
      where a.grantee <> o.owner and a.privilege_type in ('EXECUTE', 'SELECT')
    )
  )::text,
  true
);
