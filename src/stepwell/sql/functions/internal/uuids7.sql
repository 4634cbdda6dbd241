-- So many version 7 uuids, each greater than the one before. Chance is asked once and the rest counts up from there:
-- to ask for each costs more than all else there is to an enqueue.
create or replace function stepwell.uuids7(_count integer) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _first text := stepwell.uuid7();
  -- Of the last 48 bits the highest is cleared, so that counting up never runs over.
  _low bigint := ('x' || right(_first, 12))::bit(48)::bigint & 140737488355327;
  _head text := left(_first, 24);
begin
  return array(
    select (_head || lpad(to_hex(_low + n), 12, '0'))::uuid from generate_series(0, _count - 1) as n order by n
  );
end
$$;
