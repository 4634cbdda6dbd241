-- The number of jobs in each state, of one queue or of all. A count stops at 10,000 or, when _milliseconds are gone, at
-- 1,000; more has the states in which there may be more jobs than were counted.
create or replace function stepwell.count_states(_queue text, _milliseconds integer default 100) returns json
language plpgsql stable
as $$
declare
  _until timestamptz := clock_timestamp() + least(greatest(coalesce(_milliseconds, 100), 0), 10000) * interval '1 ms';
  _state stepwell.state;
  _found record;
  _counts integer[] := '{}';
  _more stepwell.state[] := '{}';
begin
  -- Those that need a person come first.
  foreach _state in array '{ready, failed, running, blocked, scheduled, waiting, cancelled, succeeded}'::stepwell.state[] loop
    select c.counted, c.more into _found
    from stepwell.count_state(_state, _queue, case when clock_timestamp() < _until then 10000 else 1000 end) c;
    _counts[array_position(enum_range(null::stepwell.state), _state)] := _found.counted;
    if _found.more then
      _more := _more || _state;
    end if;
  end loop;
  return (
    select json_object_agg(p.name, p.value order by p.n)
    from (
      select u.n, u.state::text as name, to_json(u.count) as value
      from unnest(enum_range(null::stepwell.state), _counts) with ordinality as u (state, count, n)
      union all
      select 1000, 'more', to_json(_more)
    ) p
  );
end
$$;
