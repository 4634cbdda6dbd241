-- _count version 7 uuids in ascending order. Only the first is random, and the others count up from it: random bits for
-- each would cost more than the rest of an enqueue.
create or replace function stepwell.uuids7(_count integer) returns uuid[]
language plpgsql volatile
as $$
declare
  _first text := stepwell.uuid7();
  -- The highest of the last 48 bits is cleared, so that counting up never overflows.
  _low bigint := ('x' || right(_first, 12))::bit(48)::bigint & 140737488355327;
  _head text := left(_first, 24);
begin
  return array(
    select (_head || lpad(to_hex(_low + n), 12, '0'))::uuid from generate_series(0, _count - 1) as n order by n
  );
end
$$;
