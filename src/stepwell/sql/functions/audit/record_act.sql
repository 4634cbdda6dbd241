-- Record an act of a person, in the transaction of the act: _who did _act to _target, by way of _via, which is web, cli
-- or python, and _count jobs or other things were changed. The chunks of a change of many jobs have the same _bulk and
-- are one row, whose count grows. _who is what the caller says; the role in the database is recorded beside it.
create or replace function stepwell.record_act(
  _who text,
  _via text,
  _act text,
  _target text,
  _count bigint,
  _bulk uuid default null
) returns void
language sql volatile security definer
as $$
  insert into stepwell.audit as a (at, who, via, role, act, target, count, bulk)
  select stepwell.now(), left(coalesce(_who, ''), 200), left(coalesce(_via, ''), 20), session_user,
    left(coalesce(_act, ''), 50),
    case when length(_target) > 1000 then left(_target, 997) || '...' else coalesce(_target, '') end,
    coalesce(_count, 0), _bulk
  on conflict (bulk) where bulk is not null do update
  set count = a.count + excluded.count
  where (a.who, a.role, a.act, a.target) = (excluded.who, excluded.role, excluded.act, excluded.target)
$$;
