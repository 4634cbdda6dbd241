-- The number of the limit of a job that is under one limit and no rate, as most limited jobs are; null: others.
create or replace function stepwell.lone_limit(_admission json) returns integer
language sql immutable parallel safe
as $$
  select case
    when json_array_length(_admission -> 'limits') = 1 and _admission -> 'rates' is null
    then (_admission #>> '{limits,0,most}')::integer
  end
$$;
