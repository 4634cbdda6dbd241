-- The oid of a role for a grant. Raises if the role or a kind does not exist.
create or replace function stepwell.known_role(_role text, _kinds text[]) returns oid
language plpgsql stable
as $$
declare
  _role_id oid;
  _unknown text;
begin
  select u.kind into _unknown from unnest(_kinds) as u (kind)
  where u.kind is null or u.kind not in ('producer', 'worker', 'viewer', 'operator') limit 1;
  if found or _kinds = '{}' then
    raise exception using errcode = 'SW002',
      message = format(
        'stepwell: a role is granted as producer, worker, viewer or operator, not as %s',
        coalesce(quote_literal(_unknown), 'nothing')
      );
  end if;
  select r.oid into _role_id from pg_roles r where r.rolname = _role;
  if not found then
    raise exception using errcode = 'SW002',
      message = format(
        'stepwell: this server has no role %s: "stepwell grants" lists those that have rights, "create role" makes one',
        quote_literal(_role)
      );
  end if;
  return _role_id;
end
$$;
