-- Whether this is the admission of a job, as stepwell.values.admission in Python writes it. What is stored must be
-- valid: the end of another job with the same key reads it. A key has no control characters: those of queues begin with
-- one (stepwell.queue_key).
create or replace function stepwell.is_admission(_admission json) returns boolean
language plpgsql immutable
as $$
begin
  return coalesce(
    json_typeof(_admission) = 'object'
    and coalesce(json_array_length(_admission -> 'limits'), 0)
      + coalesce(json_array_length(_admission -> 'rates'), 0) <= 8
    and not exists (
      select from json_array_elements(coalesce(_admission -> 'limits', '[]')) as r (rule)
      where (
        length(r.rule ->> 'key') between 1 and 200 and r.rule ->> 'key' !~ '[\x01-\x1f]'
        and (r.rule ->> 'most')::integer between 1 and 1000000
        and coalesce((r.rule ->> 'hold')::boolean, false) is not null
      ) is not true
    )
    and not exists (
      select from json_array_elements(coalesce(_admission -> 'rates', '[]')) as r (rule)
      where (
        length(r.rule ->> 'key') between 1 and 200 and r.rule ->> 'key' !~ '[\x01-\x1f]'
        and (r.rule ->> 'burst')::integer between 1 and 1000000
        and coalesce((r.rule ->> 'late')::double precision, 0) between 0 and 1
        and (r.rule ->> 'interval')::double precision between 1e-9 and 3155760000
      ) is not true
    )
    and (
      _admission -> 'fair' is null
      or length(_admission #>> '{fair,key}') between 1 and 200
      and coalesce((_admission #>> '{fair,weight}')::double precision, 1) between 0.01 and 100
    )
    and (
      _admission -> 'unique' is null
      or length(_admission #>> '{unique,key}') between 1 and 200
      and stepwell.is_conflict_action(_admission #>> '{unique,conflict}')
      and coalesce((_admission #>> '{unique,until_start}')::boolean, false) is not null
      and coalesce((_admission #>> '{unique,period}')::double precision, 1) between 0 and 3155760000
      and coalesce((_admission #>> '{unique,max_wait}')::double precision, 0) between 0 and 3155760000
    ),
    false
  );
exception when data_exception then
  return false;
end
$$;
