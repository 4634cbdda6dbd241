-- Runs first in the transaction that migrates.
-- A role that may create objects in a schema on the migrator's search_path could otherwise provide an operator or
-- function that matches better than the one in pg_catalog, and have it run with the migrator's rights.
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local client_min_messages = warning;
-- New objects belong to the owner of the existing ones, whichever role migrates. If a superuser migrated a schema that
-- an ordinary role owns, that role could place its own functions beside those that run with the superuser's rights.
do $$
declare
  _owners oid[];
begin
  select array_agg(distinct o.owner) into _owners
  from (
    select n.nspowner as owner from pg_namespace n where n.nspname = 'stepwell'
    union
    select c.relowner from pg_class c where c.relnamespace = to_regnamespace('stepwell')
    union
    select p.proowner from pg_proc p where p.pronamespace = to_regnamespace('stepwell')
  ) o;
  if cardinality(_owners) = 1 and _owners[1] <> (select r.oid from pg_roles r where r.rolname = current_user)
    and pg_has_role(
      _owners[1], case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end
    )
  then
    perform set_config('role', (select r.rolname from pg_roles r where r.oid = _owners[1]), true);
  end if;
end
$$;
-- A call in progress ends first, and a new call waits before it holds anything, so no call finds a function missing
-- halfway. If tables were locked one by one as they change, callers that hold other tables would deadlock with this.
-- The order is the one in which most calls lock them.
do $$
declare
  _name text;
begin
  for _name in
    select u.name
    from unnest(array[
      'worker', 'control', 'schedule', 'job', 'event', 'step', 'large_value', 'failure', 'history', 'tick', 'stat'
    ]) with ordinality as u (name, n)
    where to_regclass('stepwell.' || u.name) is not null
    order by u.n
  loop
    execute format('lock table stepwell.%I in access exclusive mode', _name);
  end loop;
end
$$;
