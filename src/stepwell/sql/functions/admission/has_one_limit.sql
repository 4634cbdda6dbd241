-- Whether a job is under one limit and no rate, as most are.
create or replace function stepwell.has_one_limit(_admission json) returns boolean
language sql immutable parallel safe
as $$
  select json_array_length(_admission -> 'limits') = 1 and _admission -> 'rates' is null
$$;
