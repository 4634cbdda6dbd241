-- The name that is almost the same as one that nothing has: one letter more, less or different, two letters in the
-- wrong order, or other capitals. Null: there is none.
create or replace function stepwell.nearest_name(_name text, _names text[]) returns text
language sql immutable
as $$
  select n.name
  from (select distinct u.name from unnest(_names) as u (name)) n
  -- Two such names are equal if each leaves out at most one letter, the 0th being none.
  where abs(length(n.name) - length(_name)) <= 1 and exists (
    select overlay(lower(n.name) placing '' from greatest(i, 1) for least(i, 1))
    from generate_series(0, length(n.name)) as i
    intersect
    select overlay(lower(_name) placing '' from greatest(i, 1) for least(i, 1))
    from generate_series(0, length(_name)) as i
  )
  order by lower(n.name) <> lower(_name), n.name
  limit 1
$$;
