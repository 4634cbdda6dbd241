-- The name of a role as written in a grant; 0 is public.
create or replace function stepwell.role_name(_role_id oid) returns text
language sql stable
as $$
  select case
    when _role_id = 0 then 'public' else (select quote_ident(r.rolname) from pg_roles r where r.oid = _role_id)
  end
$$;
