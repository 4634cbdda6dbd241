-- The limits and rates of a job, one row each.
create or replace function stepwell.rules_of(_admission json) returns table (rule json, rate boolean)
language sql immutable parallel safe
as $$
  select json_array_elements(_admission -> 'limits'), false
  union all
  select json_array_elements(_admission -> 'rates'), true
$$;
