-- Acts of people, the newest first: at most _limit, by one person and of one kind or of all, before the row _before.
-- Without a match it stops after 20,000 rows. next: pass it as _before to continue; null: there are no older ones.
create or replace function stepwell.dashboard_audit(
  _who text default null,
  _act text default null,
  _before bigint default null,
  _limit integer default 50
) returns json
language plpgsql stable security definer
as $$
declare
  _look constant integer := 20000;
  _page integer := least(greatest(coalesce(_limit, 50), 1), 500);
  _row record;
  _acts json[] := '{}';
  _looked integer := 0;
  _next bigint;
begin
  for _row in
    select a.* from stepwell.audit a where _before is null or a.id < _before order by a.id desc limit _look
  loop
    _looked := _looked + 1;
    if (_who is null or _row.who = _who) and (_act is null or _row.act = _act) then
      _acts := _acts || json_build_object(
        'id', _row.id, 'at', _row.at, 'who', _row.who, 'via', _row.via, 'role', _row.role, 'act', _row.act,
        'target', _row.target, 'count', _row.count
      );
    end if;
    if cardinality(_acts) = _page or _looked = _look then
      _next := _row.id;
      exit;
    end if;
  end loop;
  return json_build_object(
    'acts', array_to_json(_acts), 'looked', _looked,
    'next', (select _next where exists (select from stepwell.audit a where a.id < _next))
  );
end
$$;
