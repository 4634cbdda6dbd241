-- The number of the limit of a job that is under one limit and no rate, and does not hold its permit over waits: most
-- limited jobs are like that. Null: others.
create or replace function stepwell.lone_limit(_admission json) returns integer
language sql immutable parallel safe
as $$
  select case
    when json_array_length(_admission -> 'limits') = 1 and _admission -> 'rates' is null
      and (_admission #>> '{limits,0,hold}')::boolean is not true
    then (_admission #>> '{limits,0,most}')::integer
  end
$$;
