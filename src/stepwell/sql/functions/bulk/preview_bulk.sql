-- What a bulk operation would change if it were started now: how many jobs match, counted up to 10,001 or until
-- _milliseconds are gone (more: there may be more), and the newest five of them. Pass as_of to stepwell.start_bulk, so
-- that it changes these jobs and no newer ones, or to this function, to count them again.
create or replace function stepwell.preview_bulk(
  _act text,
  _filter jsonb,
  _milliseconds integer default 500,
  _as_of timestamptz default null
) returns json
language plpgsql stable security definer
as $$
declare
  _then timestamptz := least(_as_of, stepwell.now());
  _states stepwell.state[] := stepwell.bulk_states(_act, _filter);
  _found json := stepwell.bulk_matches(_filter, _states, _then, null, 10001, _milliseconds, _act = 'retry');
begin
  return json_build_object(
    'act', _act, 'states', to_json(_states), 'count', json_array_length(_found -> 'ids'),
    'more', _found ->> 'looked_to' is not null, 'looked', _found -> 'looked',
    'as_of', _then,
    'examples', coalesce(
      (
        select json_agg(
          json_build_object(
            'id', j.id, 'state', j.state, 'task', j.task, 'queue', j.queue, 'enqueued_at', j.enqueued_at,
            'args', case when octet_length(j.args::text) <= 4000 then j.args::text end,
            'error', left(coalesce(j.error, stepwell.last_error(j.id, j.attempt, j.finished_at)), 300)
          )
          order by j.id desc
        )
        from stepwell.jobs j
        where j.id = any (array(
          select i.id::uuid from json_array_elements_text(_found -> 'ids') with ordinality as i (id, n) where i.n <= 5
        ))
      ),
      '[]'
    )
  );
end
$$;
