-- Make a role a producer, worker, viewer or operator, on record for later migrations. For the owner of the schema.
create or replace function stepwell.grant_role(_role text, _kinds text[]) returns void
language plpgsql volatile
as $$
declare
  _role_id oid := stepwell.known_role(_role, _kinds);
begin
  -- A role that had this name before is another role.
  delete from stepwell.grantee e where e.role = _role and e.role_id <> _role_id;
  insert into stepwell.grantee (role, kind, role_id)
  select _role, u.kind, _role_id from unnest(_kinds) as u (kind)
  on conflict on constraint grantee_pkey do nothing;
  perform stepwell.grant_kinds(_role_id, _kinds);
end
$$;
